package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"golang.org/x/sys/unix"
)

// The kinds of errors. Errors by status have a kind for each status.
const (
	Refused       = "refused"
	Reset         = "reset"          // the peer reset the connection
	Closed        = "closed"         // the peer closed before the response
	Cut           = "cut"            // the peer closed in the middle of the response
	Late          = "late"           // the response came after Plan.Deadline
	TimedOut      = "timeout"        // no complete response in time
	noConnection  = "no connection"  // no connection had a free place in time
	noConnect     = "connect failed" // for another reason than a refusal
	noPort        = "no local port"  // all ports are in TIME_WAIT
	badResponse   = "bad response"   // the response is not HTTP
	wrongResponse = "wrong response" // the response belongs to another request
	unsolicited   = "unsolicited"    // bytes on a connection without a request
	dropped       = "dropped"        // the backlog was full
	other         = "other"
)

// kindError is an error with its kind.
type kindError struct {
	kind string
	error
}

func (e *kindError) Unwrap() error { return e.error }

// dialError gives the error of a connect its kind. Refused ends the run.
func dialError(addr string, err error) error {
	switch {
	case errors.Is(err, unix.ECONNREFUSED):
		return &kindError{Refused, fmt.Errorf("%s refuses connections (%w): start the server, or correct target.url",
			addr, unix.ECONNREFUSED)}
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return &kindError{noPort, err}
	case errors.Is(err, unix.ETIMEDOUT):
		return &kindError{TimedOut, err}
	}
	return &kindError{noConnect, err}
}

// kindOf returns the kind of an error on a connection.
func kindOf(err error) string {
	var known *kindError
	var timeout net.Error
	switch {
	case errors.As(err, &known):
		return known.kind
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return TimedOut
	case errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE):
		return Reset
	case errors.Is(err, io.EOF):
		return Closed
	case errors.Is(err, io.ErrUnexpectedEOF):
		return Cut
	}
	return other
}

// kindsWithin returns the kinds of an error in the middle of a response: the kind for the request of the response,
// and the kind for the later requests on the connection.
func kindsWithin(err error) (first, others string) {
	switch kind := kindOf(err); kind {
	case other:
		return badResponse, Closed
	case Closed, Cut:
		return Cut, Closed
	case Reset:
		return Cut, Reset
	default:
		return kind, kind
	}
}
