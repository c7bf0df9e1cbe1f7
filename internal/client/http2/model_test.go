//go:build !race

// The race detector would make the histories of the model take six times as long. Other tests look for races.

package http2

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/http2codec"
)

// model predicts a connection's behaviour, without its buffers, lists and goroutines. A test makes
// both take the same steps (modelsteps_test.go), and compares them when the connection waits.
type model struct {
	*wire
	rng     *rand.Rand
	streams []*modelStream // by number; each number is used
	headers *hpack.Decoder
	status  string // of the header that is decoded

	window, initial  int64 // for sending
	gathers          bool  // the connection may wait for more credit than a small WINDOW_UPDATE returned
	pings, settings  int   // acknowledgements that must arrive
	drain            drainStage
	drained          time.Time // when the drain began
	over             bool      // the connection has ended, or is to end:
	code             http2.ErrCode
	last             uint32 // the stream in the last GOAWAY
	goAways, wantedG int
}

var full = flag.Bool("full", false, "run campaigns as a whole")

type drainStage uint8

const (
	noDrain drainStage = iota
	announced
	final
)

// modelStream is a stream from the client's view.
type modelStream struct {
	id     uint32
	state  modelState
	ended  bool // the client can send nothing more
	length int  // content-length, -1 for none
	got    int
	room   int // bytes that the client may send
	credit int64

	continues bool   // a 100 must arrive
	status    string // of the header that must arrive
	body      []byte // the bytes of the body that must arrive
	trailers  bool   // trailers must arrive
	resets    []http2.ErrCode

	served, cancelled, responded bool // as Request must see it
}

type modelState uint8

const (
	coming modelState = iota
	serving
	sending
	gone
	ignored // a GOAWAY said that it is not processed
)

func newModel(t *testing.T, rng *rand.Rand) *model {
	opts := wireOptions
	opts.ParkAfter = time.Hour
	m := &model{rng: rng, window: http2codec.InitialWindow, initial: http2codec.InitialWindow, settings: 1}
	m.wire = newWire(t, opts)
	m.headers = hpack.NewDecoder(4096, func(f hpack.HeaderField) {
		if f.Name == ":status" {
			m.status = f.Value
		}
	})
	m.send()
	m.receive(func(f http2.Frame) {
		if f, ok := f.(*http2.SettingsFrame); ok && f.IsAck() {
			m.settings--
		}
	})
	return m
}

// Random steps of clients and owners. Each stream gets only its own response, exactly as much of it
// as the windows allow. Each violation has its code. A request is served if it is whole, cancelled
// if its client has left, and released once.
func TestConnectionsBehaveLikeTheirModel(t *testing.T) {
	testsupport.Long(t)
	const steps = 120
	runs := uint64(100)
	if *full {
		runs = 5000
	}
	for seed := range runs {
		testsupport.Bubble(t, func(t *testing.T) {
			m := newModel(t, rand.New(rand.NewPCG(13, seed)))
			for i := 0; i < steps && !m.over && !t.Failed(); i++ {
				what := m.step()
				m.send()
				m.compare(what)
				m.passTime(20 * time.Millisecond)
			}
			m.finish()
		})
		testsupport.MustTrue(t, !t.Failed(), "seed %d", seed)
	}
}

// passTime lets time pass: the drain's second, and the timeouts of streams, if d is long.
func (m *model) passTime(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
	if m.drain == announced && !m.over && time.Since(m.drained) >= announceFor {
		m.endDrain()
	}
	before := m.gathers
	m.gathers = before && d < gatherFor
	m.compare("time")
	m.gathers = before
}

// endDrain is called when the client knows of the drain.
func (m *model) endDrain() {
	m.drain, m.last = final, m.lastID()
	m.wantedG++
}

// violate closes the connection.
func (m *model) violate(code http2.ErrCode) {
	m.over, m.code, m.last = true, code, m.lastID()
	m.wantedG++
	for _, s := range m.streams {
		m.drop(s)
	}
}

func (m *model) lastID() uint32 {
	for _, s := range slices.Backward(m.streams) {
		if s.state != ignored {
			return s.id
		}
	}
	return 0
}

// open returns how many streams are open, and how many requests are served whose stream is gone.
func (m *model) open() (open, ghosts int) {
	for _, s := range m.streams {
		switch {
		case s.state < gone:
			open++
		case s.served && !s.responded:
			ghosts++
		}
	}
	return open, ghosts
}

// drop ends a stream without a response, or in the middle of one.
func (m *model) drop(s *modelStream) {
	if s.state == serving {
		s.cancelled = true
	}
	if s.state < gone {
		s.state = gone
	}
	s.status, s.body, s.trailers = "", nil, false
}

// reset is drop for a violation.
func (m *model) reset(s *modelStream, code http2.ErrCode) {
	m.drop(s)
	s.resets = append(s.resets, code)
}

// respond makes the model expect a response.
func (m *model) respond(s *modelStream, status int, body []byte, trailers bool) {
	s.state, s.status, s.body, s.trailers = sending, fmt.Sprint(status), body, trailers
	if !s.ended && (s.length < 0 || s.length-s.got > s.room) {
		s.resets = append(s.resets, http2.ErrCodeNo)
	}
}

// whole is called when the end of a request has arrived.
func (m *model) whole(s *modelStream) {
	if s.length >= 0 && s.got != s.length {
		m.reset(s, http2.ErrCodeProtocol)
		return
	}
	s.state, s.ended, s.served = serving, true, true
}

// compare compares the frames that have arrived with the expected ones. The connection must be
// waiting.
func (m *model) compare(step string) {
	m.t.Helper()
	m.receive(func(f http2.Frame) { m.take(step, f) })
	m.conn.mu.Lock() // the owner's calls are made with it
	defer m.conn.mu.Unlock()
	wrong := func(format string, args ...any) { m.t.Errorf("after %s: %s", step, fmt.Sprintf(format, args...)) }
	if m.pings != 0 || m.settings != 0 || m.goAways != m.wantedG {
		wrong("PINGs %d, SETTINGS %d to be acknowledged; %d of %d GOAWAYs", m.pings, m.settings, m.goAways, m.wantedG)
	}
	for _, s := range m.streams {
		switch r := m.owner().requests[s.id]; {
		case s.state == coming && s.room <= http2codec.InitialWindow/2:
			wrong("the client may send %d bytes on stream %d", s.room, s.id)
		case s.status != "" || s.continues:
			wrong("stream %d waits for a header %s", s.id, s.status)
		case len(s.resets) > 0:
			wrong("stream %d waits for a reset %v", s.id, s.resets)
		case len(s.body) > 0 && m.window > 0 && (m.window >= http2codec.MaxFrameSize || !m.gathers) && m.initial+s.credit > 0:
			wrong("stream %d has %d unsent bytes, and the windows are %d and %d", s.id, len(s.body), m.window, m.initial+s.credit)
		case s.state == sending && len(s.body) == 0:
			wrong("stream %d has not ended", s.id)
		case r == nil:
			if s.served || s.cancelled {
				wrong("stream %d was not opened", s.id)
			}
		case r.served != s.served || r.cancelled != s.cancelled:
			wrong("stream %d: served %v, cancelled %v, want %v, %v", s.id, r.served, r.cancelled, s.served, s.cancelled)
		case r.released != (s.state == gone && (!s.served || s.responded)):
			wrong("stream %d: released %v in state %d", s.id, r.released, s.state)
		}
	}
	if open, ghosts := m.open(); m.drain == final && open+ghosts == 0 {
		m.over = true
	}
	select {
	case err := <-m.served:
		var v *http2codec.Error
		if !m.over || errors.As(err, &v) != (m.code != 0) || v != nil && v.Code != m.code {
			wrong("the connection ended with %v, want %v %v", err, m.over, m.code)
		}
		m.served <- err
	default:
		if m.over {
			wrong("the connection has not ended, want %v", m.code)
		}
	}
}

// take compares a frame with the expected ones.
func (m *model) take(step string, f http2.Frame) {
	id, last := f.Header().StreamID, f.Header().Flags.Has(http2.FlagDataEndStream)
	var s *modelStream
	if id > 0 {
		testsupport.MustTrue(m.t, id&1 != 0 && int(id/2) < len(m.streams), "after %s: %v", step, f)
		s = m.streams[id/2]
	}
	ok := true
	switch f := f.(type) {
	case *http2.HeadersFrame:
		m.status = ""
		m.headers.Write(f.HeaderBlockFragment())
		ends := len(s.body) == 0 && !s.trailers
		switch m.status {
		case "100":
			ok, s.continues, ends = s.continues, false, false
		case "":
			ok, s.trailers, ends = s.trailers && len(s.body) == 0, false, len(s.body) == 0
		default:
			ok, s.status = s.status == m.status, ""
		}
		ok = ok && last == ends
	case *http2.DataFrame:
		n := len(f.Data())
		ok = s.status == "" && n <= len(s.body) && int64(n) <= min(m.window, m.initial+s.credit) && bytes.Equal(f.Data(), s.body[:n]) &&
			last == (n == len(s.body) && !s.trailers)
		if ok {
			s.body = s.body[n:]
			m.window -= int64(n)
			s.credit -= int64(n)
		}
	case *http2.RSTStreamFrame:
		if ok = len(s.resets) > 0 && s.resets[0] == f.ErrCode; ok {
			s.resets = s.resets[1:]
		}
		last = false
	case *http2.GoAwayFrame:
		m.goAways++
		if m.drain == announced && !m.over {
			ok = f.LastStreamID == http2codec.MaxStreamID && f.ErrCode == 0
		} else {
			ok = f.ErrCode == m.code && f.LastStreamID == m.last
		}
	case *http2.PingFrame:
		if f.IsAck() {
			m.pings--
		} else {
			ok = m.drain != noDrain && f.Data == drainPing
		}
		last = false
	case *http2.SettingsFrame:
		m.settings--
		last = false
	case *http2.WindowUpdateFrame:
		if s != nil {
			s.room += int(f.Increment)
		}
		last = false
	}
	testsupport.True(m.t, ok, "after %s: %v; stream %+v", step, f, s)
	if last && s != nil && s.state == sending {
		s.state = gone
	}
}

// finish ends the connection, and checks that nothing is left in use.
func (m *model) finish() {
	if !m.over {
		m.over = true
		for _, s := range m.streams {
			m.drop(s)
		}
		m.hangUp()
	}
	for _, s := range m.streams {
		if s.served && !s.responded {
			m.owner().requests[s.id].respond <- &Response{Status: 200}
		}
	}
	<-m.served
	m.conn.Close()
	synctest.Wait()
	m.conn.mu.Lock()
	defer m.conn.mu.Unlock()
	for id, r := range m.owner().requests {
		s := m.streams[id/2]
		testsupport.True(m.t, r.released && r.served == s.served && r.cancelled == s.cancelled, "at the end stream %d: %+v, want served %v, cancelled %v", id, r, s.served, s.cancelled)
	}
	if c := m.conn; c.running != 0 || c.ghosts != 0 || c.held != 0 || len(c.streams.open) > 0 || len(c.out.release) > 0 {
		m.t.Errorf("left: %d running, %d ghosts, %d bytes unread, %d streams, %d unreleased", c.running, c.ghosts, c.held, len(c.streams.open), len(c.out.release))
	}
}
