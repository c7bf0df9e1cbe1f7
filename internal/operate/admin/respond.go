package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// respond serves the value that f returns as JSON, or its error.
func respond(f func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := f(r)
		if err != nil {
			fail(w, err)
			return
		}
		writeJSON(w, http.StatusOK, v)
	}
}

// refusal is an error that the request itself causes, with the status of the response.
type refusal struct {
	status int
	text   string
}

func (e *refusal) Error() string { return e.text }

func badRequest(format string, args ...any) error {
	return &refusal{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

// fail responds with the text of err and the status that belongs to err.
func fail(w http.ResponseWriter, err error) {
	status := http.StatusInternalServerError
	switch e, isRefusal := errors.AsType[*refusal](err); {
	case isRefusal:
		status = e.status
	case errors.As(err, new(*UnknownError)), errors.Is(err, ErrCaptureOff):
		status = http.StatusNotFound
	case errors.Is(err, ErrCaptureBusy):
		status = http.StatusConflict
	}
	text(w, status, err.Error())
}

// readBody returns the body of a request. A body over limit is refused with the text tooLarge.
func readBody(r *http.Request, limit int64, tooLarge string) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, limit))
	if errors.As(err, new(*http.MaxBytesError)) {
		return nil, &refusal{http.StatusRequestEntityTooLarge, tooLarge}
	} else if err != nil {
		return nil, badRequest("the body could not be read: %v", err)
	}
	return body, nil
}

func text(w http.ResponseWriter, status int, s string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	io.WriteString(w, strings.TrimSuffix(s, "\n")+"\n") //nolint:errcheck // the client has left
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.MarshalIndent(v, "", " ")
	sendJSON(w, status, b, err)
}

func sendJSON(w http.ResponseWriter, status int, b []byte, err error) {
	if err != nil {
		text(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(append(b, '\n'))
}
