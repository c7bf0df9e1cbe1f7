package route

import (
	"fmt"

	"adbuffer/internal/httpheader"
	"adbuffer/internal/ssp"
	"adbuffer/internal/upstream"
)

// requestCopy is memory for a request whose legs may outlive it; reused.
type requestCopy struct {
	fields   httpheader.RequestFields
	identity httpheader.Identity
	memory   []byte // the header's block, the query and the body
	reserved int64  // bytes of the budget
}

// copySize returns how many bytes a copy of r needs.
func copySize(r *ssp.Request) int64 { return int64(r.Fields.Size() + len(r.Query) + len(r.Body)) }

// take replaces r, and all memory that it points to, by a copy in c. It returns false if the copy
// does not fit into the budget.
func (c *requestCopy) take(r *ssp.Request) bool {
	n := copySize(r)
	if !r.Budget.Reserve(n) {
		return false
	}
	c.reserved = n
	r.Held += n
	if int64(cap(c.memory)) < n {
		c.memory = make([]byte, 0, n)
	}
	m := c.fields.CopyFrom(r.Fields, c.memory[:0])
	query := len(m)
	m = append(m, r.Query...)
	body := len(m)
	m = append(m, r.Body...)
	c.identity.CopyFrom(r.Identity, &c.fields)
	c.memory = m
	r.Fields, r.Identity, r.Query, r.Body = &c.fields, &c.identity, m[query:body:body], m[body:]
	return true
}

// release drops the copy, and releases its bytes.
func (c *requestCopy) release(b *upstream.Budget) {
	b.Release(c.reserved)
	c.reserved = 0
	c.fields.Reset()
	c.identity = httpheader.Identity{}
	if cap(c.memory) > upstream.MaxKeptBuffer {
		c.memory = nil
	}
}

func overBudget(what string, n int64, b *upstream.Budget) *upstream.Error {
	return &upstream.Error{
		Outcome: upstream.Overloaded, Progress: upstream.NotSent,
		Detail: fmt.Sprintf("%s needs %d bytes, and %d of %d are held; see %s", what, n, b.Used(), b.Limit(), b.From()),
	}
}
