package http1

import (
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/socket"
)

const (
	simBudget = 100 * time.Millisecond // until the deadline of an exchange of the simulation
	simLinger = 50 * time.Millisecond
	tick      = time.Millisecond
)

// sim is a connection under test and its script.
type sim struct {
	tb        testing.TB
	s         *testsupport.SimulatedSocket
	conn      exchange.Conn
	owner     *recorder
	exchanges int // so far; each frees its place once
}

// call is an exchange under way.
type call struct {
	ex  *exchange.Exchange
	err error
	at  time.Time // when it ended; zero while it runs
}

func newSim(tb testing.TB, k kind, opts *Options) *sim {
	tb.Helper()
	m := &sim{tb: tb, s: testsupport.NewSimulatedSocket(tb), owner: newRecorder()}
	sock := socket.New(m.s)
	m.conn = k.open(sock, sock, m.owner, opts)
	return m
}

// begin starts an exchange, and returns when its request is written or waits.
func (m *sim) begin(budget time.Duration, set func(*exchange.Exchange)) *call {
	m.exchanges++
	c := &call{ex: newExchange(m.tb)}
	c.ex.Deadline = time.Now().Add(budget)
	if set != nil {
		set(c.ex)
	}
	go func() {
		err := m.conn.Do(c.ex)
		c.err, c.at = err, time.Now()
	}()
	synctest.Wait()
	return c
}

// send delivers text and waits until it is read.
func (m *sim) send(text string) {
	m.s.Arrive(text)
	synctest.Wait()
}

// close ends the connection, and checks that each exchange freed its place once.
func (m *sim) close() {
	m.tb.Helper()
	time.Sleep(time.Minute) // longer than any linger
	m.conn.Close(exchange.ClosedDrain)
	synctest.Wait()
	m.s.Release()
	synctest.Wait()
	freed, _ := m.owner.counts()
	testsupport.MustEqual(m.tb, freed, m.exchanges, "%d places were freed after %d exchanges", m.exchanges)
}

// wantBody checks that an exchange has succeeded, at a given time, with a body.
func (m *sim) wantBody(c *call, at time.Time, status int, body string) {
	m.tb.Helper()
	testsupport.MustTrue(m.tb, !c.at.IsZero() && c.err == nil, "the exchange failed: %v", c.err)
	testsupport.MustTrue(m.tb, c.ex.Response.Status == status && string(c.ex.Response.Body) == body, "got %d %q, want %d %q", c.ex.Response.Status, c.ex.Response.Body, status, body)
	testsupport.MustTrue(m.tb, at.IsZero() || c.at.Equal(at), "the exchange ended %v late", c.at.Sub(at))
}

// exchange runs one successful exchange, whose response arrives after a pause.
func (m *sim) exchange(budget, pause time.Duration) {
	m.tb.Helper()
	c := m.begin(budget, nil)
	m.s.Take()
	time.Sleep(pause)
	m.send(textResponse("before"))
	m.wantBody(c, time.Time{}, 200, "before")
}
