package header

import (
	"errors"
	"fmt"
	"slices"

	"adbuffer/internal/wire/syntax"
)

// IdentityMode says which fields tell an SSP the client's identity: the setting identity.
type IdentityMode string

// The modes. Any other value means XForwardedFor.
const (
	// XForwardedFor continues X-Forwarded-For. The other fields of its kind (X-Forwarded-Proto,
	// X-Forwarded-Host, Forwarded, X-Real-IP, True-Client-IP) cross from trusted peers.
	XForwardedFor IdentityMode = "x_forwarded_for"
	// XDevice sets X-Device-IP and X-Device-User-Agent, as VAST 4 requires. Other X-Device-* are
	// forwarded from trusted peers.
	XDevice IdentityMode = "x_device"
	// Both does both of the above.
	Both IdentityMode = "both"
	// None sends no identity field.
	None IdentityMode = "none"
)

// NameValue is a field that a policy sets. Package config explains the tags.
type NameValue struct {
	Name  string `yaml:"name" jsonschema:"required" empty:"must be set" form:"set field"`
	Value string `yaml:"value" form:"field value" hide:"field"`
}

// PolicyOptions say which fields of a request are forwarded to one SSP, and which fields of its
// response are forwarded back.
type PolicyOptions struct {
	// Pass names guarded fields of requests and responses that may cross, in any case.
	Pass []string
	// Remove names fields that never reach the SSP, in any case and with '_' read as '-'. Each is a token.
	Remove []string
	// Set lists fields of every request to the SSP. They replace all other fields with their names,
	// in any case and with '_' read as '-'. Two fields with the same name are both sent.
	Set []NameValue
	// Identity says which fields give the SSP the client's identity.
	Identity IdentityMode
	// Via is the name of this process in the Via field that is added to each request; "" adds none.
	// A Remove or Set of Via also suppresses it.
	Via string
	// RequestID is the field for the id of each request; "" = none. SSPs' fields of that name are
	// not forwarded, since adbuffer writes its own into responses. SendRequestID sends the id to
	// the SSP. A Remove or Set of the field also suppresses it.
	RequestID     string
	SendRequestID bool
}

// Policy says which fields are forwarded between clients and one SSP. It never changes and is safe
// for concurrent use.
type Policy struct {
	options PolicyOptions // the options of NewPolicy
	pass    []string
	dropped []string // names of fields that are removed or set
	set     []byte   // the lines of the fields that are set

	actions [3][nameIDs]action // by the trust in the request's identity fields

	forwardedFor, deviceIP, deviceUserAgent bool // whether these fields are sent

	via viaLines

	requestID     string // of PolicyOptions
	sendRequestID bool
}

// action says how a policy handles a request field of one kind.
type action uint8

const (
	drop action = iota
	copyLine
	copyIfPassed
	shortenAddrs     // copy with shorter addresses
	shortenForwarded // copy with shorter addresses, in the syntax of RFC 7239
)

// The rows of Policy.actions.
const (
	untrustedPeer = iota
	trustedPeer
	trustedPeerTruncate
)

// NewPolicy returns the policy that o describes. Values that CheckPass and CheckSet refuse have
// no effect: the caller must have checked them.
func NewPolicy(o PolicyOptions) *Policy {
	p := &Policy{options: o}
	if CheckRequestID(o.RequestID) == nil {
		p.requestID = o.RequestID
	}
	for _, name := range o.Pass {
		if CheckPass(name) == nil {
			p.pass = append(p.pass, name)
		}
	}
	p.dropped = slices.Clone(o.Remove)
	for _, field := range o.Set {
		if CheckSet(field) == nil {
			p.dropped = append(p.dropped, field.Name)
			p.set = syntax.AppendField(p.set, []byte(field.Name), syntax.Trim([]byte(field.Value)))
		}
	}

	list := o.Identity != XDevice && o.Identity != None
	device := o.Identity == XDevice || o.Identity == Both
	for row := range p.actions {
		for name := range nameGuarded {
			p.actions[row][name] = copyLine
		}
		p.actions[row][nameGuarded] = copyIfPassed
	}
	if list {
		row := &p.actions[trustedPeer]
		row[nameForwarded], row[nameForwardedAddr], row[nameForwardedOther] = copyLine, copyLine, copyLine
		row = &p.actions[trustedPeerTruncate]
		row[nameForwarded], row[nameForwardedAddr], row[nameForwardedOther] = shortenForwarded, shortenAddrs, shortenAddrs
	}
	if device {
		p.actions[trustedPeer][nameDeviceOther] = copyLine
		p.actions[trustedPeerTruncate][nameDeviceOther] = shortenAddrs
	}
	p.forwardedFor = list && !p.Drops("x-forwarded-for")
	p.deviceIP = device && !p.Drops("x-device-ip")
	p.deviceUserAgent = device && !p.Drops("x-device-user-agent")
	if !p.Drops("via") {
		p.via = newViaLines(o.Via)
	}
	p.sendRequestID = o.SendRequestID && p.requestID != "" && !p.Drops(p.requestID)
	return p
}

// Sets reports whether the policy sets fields of this name.
func (p *Policy) Sets(name []byte) bool { return len(p.set) > 0 && p.drops(name) }

// Drops reports whether the policy removes the client's fields of this name, or replaces them.
func (p *Policy) Drops(name string) bool { return p.drops([]byte(name)) }

// drops is Drops for a name as bytes. It compares names in any case and with '_' read as '-'.
func (p *Policy) drops(name []byte) bool {
	return slices.ContainsFunc(p.dropped, func(dropped string) bool { return sameName(name, dropped) })
}

// Dropped returns a text for each field of f that a setting keeps from the SSP, with the name of that setting. Fields that
// cross no proxy, such as Connection, have no text, nor have fields that adbuffer writes itself.
func (p *Policy) Dropped(f *RequestFields, id *Identity) (all []string) {
	for i := range f.fields {
		field := &f.fields[i]
		why := ""
		switch {
		case field.withheld || field.id.neverForwarded() && field.id != nameLookAlike:
		case slices.ContainsFunc(p.options.Set, func(s NameValue) bool { return sameName(field.Name, s.Name) }):
			why = "headers.set replaces it"
		case p.drops(field.Name):
			why = "headers.remove removes it"
		case p.appends(field, id):
		case field.id == nameGuarded:
			why = "headers.pass passes it"
		case field.id == nameLookAlike:
			why = "servers may read '_' as '-'"
		case !id.trusted && p.actions[trustedPeer][field.id] != drop:
			why = "it crosses if server.trusted_proxies has the peer"
		default:
			why = "identity decides which of these fields cross"
		}
		if why != "" {
			all = append(all, string(field.Name)+": "+why)
		}
	}
	return all
}

// appends reports whether the SSP gets a field of this name, from the client or from adbuffer.
func (p *Policy) appends(field *Field, id *Identity) bool {
	switch field.id {
	case nameForwardedFor:
		return p.forwardedFor
	case nameDeviceIP:
		return p.deviceIP
	case nameDeviceUserAgent:
		return p.deviceUserAgent
	}
	act := p.actions[id.trustRow()][field.id]
	return act != drop && len(p.appendField(nil, field, act)) > 0
}

// passes reports whether guarded fields of this name may cross, in any case.
func (p *Policy) passes(name []byte) bool {
	return slices.ContainsFunc(p.pass, func(passed string) bool { return syntax.EqualFold(name, passed) })
}

// With returns a policy like p that also sets the given fields, in place of fields with these names that p sets. It
// is for start-up, not for each request: for example, legs that need Accept-Encoding: identity have a policy of their
// own.
func (p *Policy) With(set ...NameValue) *Policy {
	o := p.options
	o.Set = slices.Clone(set)
	for _, field := range p.options.Set {
		replaced := func(s NameValue) bool { return sameName([]byte(s.Name), field.Name) }
		if !slices.ContainsFunc(set, replaced) {
			o.Set = append(o.Set, field)
		}
	}
	return NewPolicy(o)
}

// CheckPass returns an error if name is not allowed in PolicyOptions.Pass.
func CheckPass(name string) error {
	if !syntax.IsToken([]byte(name)) {
		return errNotToken
	}
	switch id := identify([]byte(name)); {
	case id.neverForwarded():
		return fmt.Errorf("%s never crosses the proxy", name)
	case id.isIdentity():
		return fmt.Errorf("%s says whose request it is; see identity", name)
	}
	return nil
}

// CheckSet returns an error if the field is not allowed in PolicyOptions.Set.
func CheckSet(field NameValue) error {
	if !syntax.IsToken([]byte(field.Name)) {
		return errNotToken
	}
	id := identify([]byte(field.Name))
	switch {
	case id == nameHost:
		return errors.New("Host is set by the SSP's key host")
	case id.neverForwarded():
		return fmt.Errorf("%s never crosses the proxy", field.Name)
	}
	if !syntax.IsValue([]byte(field.Value)) {
		return errors.New("the value has a control byte")
	}
	return nil
}

var errNotToken = errors.New("not a field name: letters, digits and !#$%&'*+-.^_`|~ only")
