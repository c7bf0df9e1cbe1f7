package chaos

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/stage"
)

// creditStream is a request of a client that returns credit frame by frame.
type creditStream struct {
	*request
	sent     time.Time
	response response
}

// useCredit is an honest HTTP/2 client that has many large responses at once, returns credit for each
// DATA frame, and cancels one response in twenty.
func (r *run) useCredit(ctx context.Context, st *instance, rnd *rand.Rand) error {
	const requests, atOnce = 250, 100
	conn, err := r.dial(ctx, st, honest(rnd), "HTTP/2 with credit by the frame", "h2")
	if err != nil {
		return err
	}
	defer conn.Close()
	f := load.NewRawHTTP2(conn)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	streams, opened, stalled := map[uint32]*creditStream{}, 0, st.stalls.total()
	end := func(id uint32) {
		if s := streams[id]; s != nil {
			delete(streams, id)
			s.response.took = time.Since(s.sent)
			r.judge(s.request, &s.response, st.stalls.total()-stalled, 0)
		}
	}
	for leaving, heard := false, false; ; heard = true {
		for ; !leaving && opened < requests && len(streams) < atOnce; opened++ {
			a := r.draw(st, "HTTP/2 with credit by the frame", rnd)
			a.method, a.body, a.path, a.healthy, a.fansOut, a.deadline, a.sickness = "GET", nil, "/large", "", false, mostDeadline, 0
			a.inHeader = true
			streams[open(f, opened, a, -1)] = &creditStream{request: a, sent: time.Now()}
		}
		if len(streams) == 0 {
			break
		}
		_ = conn.SetDeadline(time.Now().Add(patience))
		_ = f.Flush()
		frame, err := f.ReadFrame()
		switch {
		case err != nil && !heard && st.starved():
			return nil // a connection that is still idle makes room for descriptors
		case err != nil:
			r.broken.add(kept, "%s: after %d requests: %v", st.name, opened, err)
			return nil
		}
		id := frame.Header().StreamID
		s := streams[id]
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				_ = f.WriteSettingsAck()
			}
		case *http2.MetaHeadersFrame:
			if s != nil && rnd.IntN(20) == 0 {
				_ = f.WriteRSTStream(id, http2.ErrCodeCancel)
				delete(streams, id)
			} else if s != nil {
				s.response.status, _ = strconv.Atoi(frame.PseudoValue("status"))
				s.response.header = http.Header{}
				for _, field := range frame.RegularFields() {
					s.response.header.Add(field.Name, field.Value)
				}
			}
		case *http2.DataFrame:
			if frame.Length > 0 {
				_ = f.WriteWindowUpdate(0, frame.Length)
			}
			if s != nil {
				s.response.body = append(s.response.body, frame.Data()...)
				if !frame.StreamEnded() && frame.Length > 0 {
					_ = f.WriteWindowUpdate(id, frame.Length)
				}
			}
		case *http2.RSTStreamFrame:
			delete(streams, id)
		case *http2.GoAwayFrame:
			if frame.ErrCode != http2.ErrCodeNo {
				r.broken.add(kept, "%s: after %d requests: GOAWAY, %v, %s", st.name, opened, frame.ErrCode, frame.DebugData())
				return nil
			}
			leaving = true
			for id := range streams {
				if id > frame.LastStreamID {
					delete(streams, id)
				}
			}
		}
		if e, ok := frame.(interface{ StreamEnded() bool }); ok && e.StreamEnded() {
			end(id)
		}
	}
	for wait := rnd.IntN(100); wait > 0 && !r.pausing.Load() && ctx.Err() == nil; wait-- {
		stage.Sleep(ctx, 100*time.Millisecond)
	}
	return nil
}
