package httpheader

import "github.com/valyala/fasthttp"

// IdentityMode is how an SSP is told whose request it is.
type IdentityMode uint8

// The modes, named as in the configuration.
const (
	XForwardedFor IdentityMode = iota // continue X-Forwarded-For
	XDevice                           // set X-Device-IP and X-Device-User-Agent (VAST 4)
	Both                              // both of the above
	None                              // send no identity field at all
)

// NameValue is a field that a policy sets.
type NameValue struct{ Name, Value string }

// PolicyOptions says which fields of a request cross to one SSP, and of its answers back.
type PolicyOptions struct {
	// Pass names guarded fields that may cross.
	Pass []string
	// Remove names fields that never cross to the SSP.
	Remove []string
	// Set lists fields that every request to the SSP has, in place of any that the client sent.
	Set []NameValue
	// Identity is how the SSP is told whose request it is.
	Identity IdentityMode
}

// Policy is which fields cross between clients and one SSP. It does not change after NewPolicy and is safe for concurrent use.
type Policy struct{}

// NewPolicy returns the policy that o describes. It panics on names and values that CheckPass, CheckRemove or
// CheckSet refuse, so that whoever reads a configuration asks them first.
func NewPolicy(o PolicyOptions) *Policy { return &Policy{} }

// With returns a policy like p that also sets the given fields, in place of what p would send under their names.
func (p *Policy) With(set ...NameValue) *Policy { return p }

// AppendRequest appends a "Name: value\r\n" line to dst for every field of f that crosses and every one that
// the policy adds. It changes neither f nor id.
func (p *Policy) AppendRequest(dst []byte, f *RequestFields, id *Identity) []byte { return dst }

// CopyResponse copies the status code and the end-to-end fields of src, an SSP's answer, to dst, the empty header of our answer.
func (p *Policy) CopyResponse(dst, src *fasthttp.ResponseHeader) {}

// AddResponse adds a field to h as it is: fasthttp's own Add would drop a Date.
func AddResponse(h *fasthttp.ResponseHeader, name, value []byte) {}

// CheckPass returns why name makes no sense in PolicyOptions.Pass, or nil.
func CheckPass(name string) error { return nil }

// CheckRemove returns why name makes no sense in PolicyOptions.Remove, or nil.
func CheckRemove(name string) error { return nil }

// CheckSet returns why the field makes no sense in PolicyOptions.Set, or nil.
func CheckSet(field NameValue) error { return nil }
