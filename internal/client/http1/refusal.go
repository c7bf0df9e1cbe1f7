package http1

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/header"
)

// Refusal is the reason and the response of a refused request or connection.
type Refusal struct {
	Outcome exchange.Outcome
	Status  int // 0 = the outcome's own; see StatusCode
	Detail  string
	Allow   string // with MethodNotAllowed
	Close   bool   // the framing is in doubt: the connection ends with this response
	Reset   bool   // the stream is reset: there is no response
	// RetryAfter is when another request may succeed, 0 if unknown.
	RetryAfter time.Duration
	Pause      time.Duration // see Response
}

// Statuses of refusals whose outcome has another one.
const (
	statusRequestTimeout = 408
	statusHeaderTooLarge = 431
)

// StatusCode returns the status of the response.
func (f *Refusal) StatusCode() int { return cmp.Or(f.Status, f.Outcome.Row().Status) }

// Malformed refuses a request and closes its connection.
func Malformed(detail string) *Refusal {
	return &Refusal{Outcome: exchange.BadRequest, Detail: detail, Close: true}
}

// Late refuses a request that did not arrive in time, and closes its connection.
func Late(detail string) *Refusal {
	return &Refusal{Outcome: exchange.BadRequest, Status: statusRequestTimeout, Detail: detail, Close: true}
}

// MalformedFields returns the refusal for an error of RequestFields.Scan.
func MalformedFields(err error) *Refusal {
	e, ok := errors.AsType[*header.Error](err)
	if ok && e.TooLarge() {
		return tooLarge(err.Error())
	}
	return Malformed(err.Error())
}

func tooLarge(detail string) *Refusal {
	return &Refusal{Outcome: exchange.TooLarge, Status: statusHeaderTooLarge, Detail: detail, Close: true}
}

// HeadTooLarge refuses a message head over the limit.
func (o *Options) HeadTooLarge() *Refusal {
	return tooLarge(fmt.Sprintf("the head is over %d bytes; see server.max_header_bytes", o.MaxHeaderBytes))
}

// NotReadInTime refuses a request that did not arrive within ReadTimeout.
func (o *Options) NotReadInTime() *Refusal {
	return Late(fmt.Sprintf("the request was not read within %v; see server.read_timeout", o.ReadTimeout))
}

// tooManyConnections refuses a connection over the limit.
func (s *Server) tooManyConnections() *Refusal {
	o := s.options()
	return overloaded("%d of %d client connections are open; see %s", s.Open(), o.MaxConnections, o.connectionsFrom())
}

// madeRoom refuses the request of a connection that makes room for another one.
func (s *Server) madeRoom() *Refusal {
	return Late(fmt.Sprintf("%d client connections were open, and the head of this request had been arriving for the longest time; see %s", s.Open(), s.options().connectionsFrom()))
}

func (o *Options) connectionsFrom() string {
	return cmp.Or(o.MaxConnectionsFrom, "server.max_connections")
}

// tooManyStreams refuses a stream over the limit.
func (o *Options) tooManyStreams() *Refusal {
	return overloaded("%d of %d streams of the client's connection are open; see server.max_streams_per_conn", o.MaxStreams, o.MaxStreams)
}

// tooMuchUnread refuses a stream of a client that does not read its responses.
func (o *Options) tooMuchUnread(bytes int) *Refusal {
	return overloaded("the client has not read %d bytes of responses on its connection, which may hold %d: a sixteenth of server.max_buffered_bytes, at least 1 MiB", bytes, o.maxUnread())
}

func overloaded(format string, args ...any) *Refusal {
	return &Refusal{Outcome: exchange.Overloaded, Detail: fmt.Sprintf(format, args...)}
}
