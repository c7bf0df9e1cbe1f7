//go:build !race

package http2

import (
	"bytes"
	"fmt"
	"slices"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"adbuffer/internal/wire/http2codec"
)

// step takes a random step, and writes its frames. It returns its name.
func (m *model) step() string {
	steps := []struct {
		weight int
		take   func() string
	}{
		{24, m.openStream}, {20, m.sendData}, {4, m.sendTrailers}, {6, m.sendReset}, {14, m.ownerResponds},
		{16, m.openWindow}, {6, m.changeInitialWindow}, {3, m.sendPing}, {1, m.beginDrain}, {1, m.waitLong}, {1, m.breakConnection},
	}
	n := 0
	for _, s := range steps {
		n += s.weight
	}
	n = m.rng.IntN(n)
	for _, s := range steps {
		if n -= s.weight; n < 0 {
			return s.take()
		}
	}
	return ""
}

func (m *model) oneOf(of ...int) int { return of[m.rng.IntN(len(of))] }

func (m *model) chance(percent int) bool { return m.rng.IntN(100) < percent }

// stream returns a stream, mostly one of the newest, or nil if there is none.
func (m *model) stream() *modelStream {
	n := len(m.streams)
	if n == 0 {
		return nil
	}
	if m.chance(80) {
		return m.streams[n-1-m.rng.IntN(min(n, 5))]
	}
	return m.streams[m.rng.IntN(n)]
}

func (m *model) openStream() string {
	s := &modelStream{id: uint32(2*len(m.streams) + 1), length: -1, room: http2codec.InitialWindow}
	if len(m.streams) == remembered {
		return "nothing" // the model remembers no more
	}
	open, ghosts := m.open()
	m.streams = append(m.streams, s)
	fields, malformed := slices.Clone(get), false
	last := m.chance(50)
	if !last {
		fields[1] = "POST"
		if m.chance(50) {
			s.length = m.oneOf(0, 4, 20_000, 200_000)
			fields = append(fields, "content-length", fmt.Sprint(s.length))
		}
		if m.chance(20) {
			s.continues = true
			fields = append(fields, "expect", "100-continue")
		}
	}
	if malformed = m.chance(10); malformed {
		fields = append(fields, "Capital", "1")
	}
	m.wire.headers(s.id, last, fields...)
	switch {
	case m.drain == final:
		s.state, s.continues, s.room = ignored, false, http2codec.InitialWindow
		return "HEADERS behind the last GOAWAY"
	case open+ghosts >= wireOptions.MaxStreams:
		s.continues = false
		m.reset(s, http2.ErrCodeRefusedStream)
		s.ended = last
		return "HEADERS on a stream over the limit"
	case malformed:
		s.continues = false
		m.reset(s, http2.ErrCodeProtocol)
		s.ended = last
		return "malformed HEADERS"
	case last:
		s.ended = true
		if m.chance(10) { // in the same read
			m.framer.WriteRSTStream(s.id, http2.ErrCodeCancel)
			m.drop(s)
			return "HEADERS and RST_STREAM"
		}
		m.whole(s)
	}
	return "HEADERS"
}

func (m *model) sendData() string {
	s := m.stream()
	if s == nil {
		return "nothing"
	}
	n := min(m.oneOf(0, 1, 4, 100, 16_384), s.room)
	if rest := s.length - s.got; rest > 0 && m.chance(60) {
		n = min(rest, s.room, 16_384)
	}
	last := m.chance(30) || s.length >= 0 && s.got+n == s.length
	m.framer.WriteData(s.id, last, make([]byte, n))
	s.room -= n
	switch {
	case s.state == ignored:
		return "DATA on a stream that is ignored"
	case s.state == gone && !s.ended:
		return "DATA on a stream that is gone"
	case s.ended:
		m.reset(s, http2.ErrCodeStreamClosed)
		return "DATA behind the end"
	}
	s.got += n
	switch {
	case s.length >= 0 && s.got > s.length:
		m.reset(s, http2.ErrCodeProtocol)
	case s.got > mostBody && n > 0:
		s.continues = false
		m.respond(s, 413, nil, false)
	case last:
		m.whole(s)
	}
	return fmt.Sprintf("%d bytes of DATA, last %v", n, last)
}

func (m *model) sendTrailers() string {
	s := m.stream()
	if s == nil {
		return "nothing"
	}
	last, name := m.chance(80), "x-trailer"
	if m.chance(20) {
		name = ":path"
	}
	m.wire.headers(s.id, last, name, "1")
	switch {
	case s.state == ignored || s.state == gone && !s.ended:
	case s.state == gone:
		m.violate(http2.ErrCodeStreamClosed)
	case s.ended:
		m.reset(s, http2.ErrCodeStreamClosed)
	case !last || name == ":path":
		m.reset(s, http2.ErrCodeProtocol)
	default:
		m.whole(s)
	}
	return "trailers"
}

func (m *model) sendReset() string {
	s := m.stream()
	if s == nil {
		return "nothing"
	}
	m.framer.WriteRSTStream(s.id, http2.ErrCodeCancel)
	if s.state < gone {
		s.ended = true
		m.drop(s)
	}
	return "RST_STREAM"
}

// ownerResponds lets a call of Serve return.
func (m *model) ownerResponds() string {
	var waiting []*modelStream
	for _, s := range m.streams {
		if s.served && !s.responded {
			waiting = append(waiting, s)
		}
	}
	if len(waiting) == 0 {
		return "nothing"
	}
	s := waiting[m.rng.IntN(len(waiting))]
	body := bytes.Repeat(fmt.Appendf(nil, "<%d>", s.id), m.oneOf(0, 1, 300, 10_000, 25_000))
	trailers := m.chance(20)
	r := &Response{Status: 200, Fields: []byte("X-A: 1\r\n"), Body: body}
	if trailers {
		r.Trailers = []byte("X-T: 1\r\n")
	}
	s.responded = true
	if s.state == serving {
		m.respond(s, 200, body, trailers)
	}
	m.owner().requests[s.id].respond <- r
	return fmt.Sprintf("a response of %d bytes on stream %d", len(body), s.id)
}

func (m *model) openWindow() string {
	n := int64(m.oneOf(1, 1000, 20_000, 500_000))
	s := m.stream()
	if s == nil || m.chance(50) {
		m.openConnWindow(n)
		return "WINDOW_UPDATE"
	}
	if m.chance(10) {
		n = int64(m.oneOf(0, http2codec.MaxWindow))
	}
	m.framer.WriteWindowUpdate(s.id, uint32(n))
	if s.state >= gone {
		return "WINDOW_UPDATE on a stream that is gone"
	}
	switch s.credit += n; {
	case n == 0:
		m.reset(s, http2.ErrCodeProtocol)
	case m.initial+s.credit > http2codec.MaxWindow:
		m.reset(s, http2.ErrCodeFlowControl)
	}
	return fmt.Sprintf("WINDOW_UPDATE by %d on stream %d", n, s.id)
}

func (m *model) openConnWindow(n int64) {
	m.framer.WriteWindowUpdate(0, uint32(n))
	m.gathers = n < http2codec.MaxFrameSize
	if m.window += n; m.window > http2codec.MaxWindow {
		m.violate(http2.ErrCodeFlowControl)
	}
}

func (m *model) changeInitialWindow() string {
	m.initial = int64(m.oneOf(0, 1, 1000, http2codec.InitialWindow, 1<<20))
	m.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(m.initial)})
	if slices.ContainsFunc(m.streams, func(s *modelStream) bool { return s.state < gone && m.initial+s.credit > http2codec.MaxWindow }) {
		m.violate(http2.ErrCodeFlowControl)
	} else {
		m.settings++
	}
	return fmt.Sprintf("SETTINGS, initial window %d", m.initial)
}

func (m *model) sendPing() string {
	m.framer.WriteRawFrame(0xab, 0, m.rng.Uint32()>>1, []byte("unknown"))
	if m.drain == announced && m.chance(50) {
		m.framer.WritePing(true, drainPing)
		m.endDrain()
		return "an ACK of the drain's PING"
	}
	m.framer.WritePing(false, [8]byte{1})
	m.pings++
	return "PING"
}

func (m *model) beginDrain() string {
	if m.drain != noDrain {
		return "nothing"
	}
	m.drain, m.drained = announced, time.Now()
	m.wantedG++
	m.conn.Drain()
	return "a drain"
}

// waitLong waits until bodies and responses that do not advance have timed out.
func (m *model) waitLong() string {
	m.compare("nothing")
	if m.drain == announced {
		m.endDrain()
	}
	for _, s := range m.streams {
		switch s.state {
		case coming:
			m.respond(s, 408, nil, false)
		case sending:
			m.reset(s, http2.ErrCodeCancel)
		}
	}
	time.Sleep(2*wireTimeout + time.Second)
	synctest.Wait()
	return "a long wait"
}

// breakConnection sends a violation that ends the connection.
func (m *model) breakConnection() string {
	if !m.chance(30) {
		return "nothing"
	}
	never := uint32(2*len(m.streams) + 1)
	switch m.rng.IntN(5) {
	case 0:
		m.framer.WriteWindowUpdate(0, 0)
		m.violate(http2.ErrCodeProtocol)
	case 1:
		m.openConnWindow(http2codec.MaxWindow)
	case 2:
		if m.drain == final {
			return "nothing"
		}
		m.framer.WriteData(never, true, nil)
		m.violate(http2.ErrCodeProtocol)
	case 3:
		m.framer.WriteRSTStream(never+1, http2.ErrCodeCancel)
		m.violate(http2.ErrCodeProtocol)
	case 4:
		m.framer.WriteRawFrame(http2.FrameSettings, 0, 0, make([]byte, 5))
		m.violate(http2.ErrCodeFrameSize)
	}
	return "a violation"
}
