package exchange

import (
	"math"
	"time"
)

// Conn is one connection to an SSP, of any protocol. Its methods are safe for concurrent use. A
// pool owns it and is its [Owner].
type Conn interface {
	// Do sends ex.Request and reads the response into ex.Response. It returns nil or an *Error. It
	// returns at ex.Deadline at the latest, and at once when ex.Context ends.
	//
	// The caller must have acquired a place from the pool. Do causes exactly one call of
	// Owner.Freed: before it returns, or later if an abandoned response must still be read.
	//
	// After Do has returned, the connection does not read ex.Request any more.
	Do(ex *Exchange) error

	// Protocol returns the connection's protocol. It never changes.
	Protocol() Protocol

	// Places returns how many exchanges the connection carries at once: 0 if it is closed or
	// closing, or takes none for now. The number may change; Owner.Changed or Freed reports it.
	Places() int

	// Idle checks, without blocking, a connection without outstanding exchanges, and reports
	// whether it can still be used. It cannot if a FIN, an error or any byte has arrived. If Idle
	// returns false, the connection has closed itself, and does not call Owner.Changed for this
	// change.
	Idle() bool

	// Close closes the socket at once; its exchanges fail with ConnLost. If the connection already
	// has a close reason, that reason stays. Close does not call Owner.Changed.
	Close(CloseReason)

	// CloseReason returns why the connection takes no more requests, or NotClosed if it still takes
	// them.
	CloseReason() CloseReason

	// IdleLimit returns for how long the connection may be idle: the shortest time that the SSP has
	// announced in its responses, less a margin. 0 or less means that the connection must carry no
	// further request, NoIdleLimit that the SSP has announced no time. The limit does not change while no
	// exchange is outstanding.
	IdleLimit() time.Duration
}

// NoIdleLimit is the IdleLimit of a connection whose SSP has announced none.
const NoIdleLimit = time.Duration(math.MaxInt64)

// Owner is the pool, as one of its connections sees it. The pool calls Places during these calls,
// so a connection must hold none of its locks when it calls its Owner.
type Owner interface {
	// Freed reports that a place is free again, and that Places may have changed. held is the time from
	// Times.Acquired until the response was read, dropped or abandoned, and t is the exchange's Ticket. It
	// is called exactly once for each Do. If the connection can carry no more requests, Places returns 0
	// before this call.
	Freed(held time.Duration, t Ticket)

	// Changed reports that Places or CloseReason has changed. It is not called for changes that
	// Freed, Idle or Close report.
	Changed()
}
