package route

import (
	"slices"

	"adbuffer/internal/ssp/ssp"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/header"
)

// requestCopy is memory for a request whose legs may outlive it; reused.
type requestCopy struct {
	fields   header.RequestFields
	identity header.Identity
	memory   []byte // the header's block, the query and the body
	reserved int64  // bytes of the budget
}

// copySize returns how many bytes a copy of r needs.
func copySize(r *ssp.Request) int64 { return int64(r.Fields.Size() + len(r.Query) + len(r.Body)) }

// take replaces r, and all memory that it points to, by a copy in c. The caller has reserved copySize bytes of
// r.Budget.
func (c *requestCopy) take(r *ssp.Request) {
	c.reserved = copySize(r)
	r.Held += c.reserved
	m := c.fields.CopyFrom(r.Fields, slices.Grow(c.memory[:0], int(c.reserved)))
	query := len(m)
	m = append(m, r.Query...)
	body := len(m)
	m = append(m, r.Body...)
	c.identity.CopyFrom(r.Identity, &c.fields)
	c.memory = m
	r.Fields, r.Identity, r.Query, r.Body = &c.fields, &c.identity, m[query:body:body], m[body:]
}

// release drops the copy, and releases its bytes.
func (c *requestCopy) release(b *exchange.Budget) {
	b.Release(c.reserved)
	c.reserved = 0
	c.fields.Reset()
	c.identity = header.Identity{}
	if cap(c.memory) > exchange.MaxKeptBuffer {
		c.memory = nil
	}
}
