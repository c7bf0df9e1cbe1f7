package sspsim

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"time"
)

// maxControlBody bounds the bodies that the control endpoint reads.
const maxControlBody = 1 << 20

// startControl starts the control endpoint.
func (s *SSP) startControl() error {
	ln, err := net.Listen("tcp", s.opts.Control)
	if err != nil {
		return err
	}
	s.control = &http.Server{Addr: ln.Addr().String(), Handler: s.controlHandler(),
		ReadTimeout: 5 * time.Second, WriteTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	s.wg.Go(func() { _ = s.control.Serve(ln) })
	return nil
}

// ControlURL returns the root of the control endpoint, or "" without one.
func (s *SSP) ControlURL() string {
	if s.control == nil {
		return ""
	}
	return "http://" + s.control.Addr
}

// controlHandler shows and changes a running SSP:
//
//	GET   /behaviour          the Behaviour in force
//	PUT   /behaviour          replaces it; absent keys are zero
//	PATCH /behaviour          changes the keys that are given
//	GET   /counters           the Counters
//	POST  /close-connections  CloseConnections
//
// An invalid behaviour gets 400 and {"errors": [...]} with all its errors, and changes nothing.
func (s *SSP) controlHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /behaviour", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, 200, s.Behaviour()) })
	mux.HandleFunc("PUT /behaviour", s.change)
	mux.HandleFunc("PATCH /behaviour", s.change)
	mux.HandleFunc("GET /counters", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, 200, s.Counters()) })
	mux.HandleFunc("POST /close-connections", func(w http.ResponseWriter, _ *http.Request) {
		s.CloseConnections()
		w.WriteHeader(http.StatusNoContent)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A web page in a browser on this machine must not reach the endpoint. It could use a host
		// name that resolves to loopback, or a form.
		if !isLoopbackAddr(r.Host) || r.Header.Get("Origin") != "" {
			writeErrors(w, http.StatusForbidden, "only for programs on this machine, not for web pages")
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// change decodes the body and puts the behaviour in force. With PATCH, absent keys keep their values.
func (s *SSP) change(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxControlBody))
	if err != nil {
		writeErrors(w, http.StatusRequestEntityTooLarge, err.Error())
		return
	}
	s.setMu.Lock()
	defer s.setMu.Unlock()
	var b Behaviour
	if r.Method == http.MethodPatch {
		b = s.Behaviour()
	}
	err = b.UnmarshalJSON(body)
	if err == nil {
		err = s.setLocked(b)
	}
	if invalid := (*InvalidError)(nil); errors.As(err, &invalid) {
		writeErrors(w, http.StatusBadRequest, invalid.Mistakes...)
		return
	}
	if err != nil {
		writeErrors(w, http.StatusInternalServerError, err.Error())
		return
	}
	writeJSON(w, http.StatusOK, s.Behaviour())
}

func writeErrors(w http.ResponseWriter, status int, errs ...string) {
	writeJSON(w, status, map[string][]string{"errors": errs})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(v) // it fails only if the peer has closed the connection
}
