package upstream

import "time"

// Conn is one connection to an SSP, whatever it speaks. Its methods are safe
// for concurrent use. A pool owns it and is its [Owner].
type Conn interface {
	// Do sends ex.Request and reads the answer into ex.Answer. It returns
	// nil, or an *Error, at ex.Deadline at the latest, and at once when
	// ex.Context ends. It may be called only with a place that the pool has
	// lent, and calls Owner.Freed exactly once for it: before it returns, or,
	// where an abandoned answer must still be read, later.
	//
	// After Do has returned, nothing of ex.Request is read any more.
	Do(ex *Exchange) error

	// Protocol is what the connection speaks. It never changes.
	Protocol() Protocol

	// Places is how many exchanges the connection carries at once as of now:
	// 0 once it takes no more, since it is closed or closing. It may change;
	// Owner.Changed tells.
	Places() int

	// Idle looks, without blocking, at a connection on which nothing is
	// outstanding, and reports whether it can still be used: no FIN, no error
	// and no bytes may have come. If it returns false, the connection has
	// closed itself; Owner.Changed is not called for that.
	Idle() bool

	// Close closes the socket at once; exchanges on it fail with ConnLost.
	// The first reason stays. It does not call Owner.Changed.
	Close(CloseReason)

	// CloseReason is why the connection takes no more requests: NotClosed as
	// long as it does.
	CloseReason() CloseReason
}

// Owner is the pool, as one of its connections sees it. A connection calls it
// without holding a lock of its own, since the pool calls back into Places.
type Owner interface {
	// Freed: a place is free again, after it was in use for held (from
	// Times.Lent until the answer was read, dropped or given up). Called
	// exactly once for each Do. Where the connection can carry no more, Places
	// is 0 already.
	Freed(held time.Duration)

	// Changed: Places or CloseReason is another one than before. Not called
	// for what Freed, Idle or Close already tell.
	Changed()
}
