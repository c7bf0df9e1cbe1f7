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
	// XForwardedFor appends the peer to X-Forwarded-For. X-Forwarded-Proto, X-Forwarded-Host, Forwarded, X-Real-IP,
	// True-Client-IP and similar fields are forwarded from trusted peers.
	XForwardedFor IdentityMode = "x_forwarded_for"
	// XDevice sets X-Device-IP and X-Device-User-Agent, as VAST 4 requires. Other X-Device-* are
	// forwarded from trusted peers.
	XDevice IdentityMode = "x_device"
	// Both does what XForwardedFor and XDevice do.
	Both IdentityMode = "both"
	// None sends no identity field.
	None IdentityMode = "none"
)

// NameValue is a field that a policy sets. Package config explains the tags.
type NameValue struct {
	Name  string `yaml:"name" jsonschema:"required" empty:"must be set" form:"set field"`
	Value string `yaml:"value" form:"field value" hide:"field"`
}

// PolicyOptions say which fields of a request are forwarded to one SSP, and which fields of the
// SSP's response are forwarded to the client.
type PolicyOptions struct {
	// Pass names, in any case, the guarded fields that are forwarded: Cookie, Authorization and others of requests,
	// Set-Cookie and others of responses.
	Pass []string
	// Remove names fields of requests that are not forwarded, in any case and with '_' read as '-'. Each name is a
	// token.
	Remove []string
	// Set lists fields that every request to the SSP gets. They replace the client's fields of the same name, in any
	// case and with '_' read as '-'. If Set has two fields of one name, both are sent.
	Set []NameValue
	// Identity says which fields give the SSP the client's identity.
	Identity IdentityMode
	// Via is the name of this process in the Via field that is added to each request; "" adds none.
	// It is not added if Remove or Set names Via.
	Via string
	// RequestID is the field for the id of each request; "" = none. SSPs' fields of that name are
	// not forwarded, since adbuffer writes its own into responses. SendRequestID sends the id to
	// the SSP, unless Remove or Set names the field.
	RequestID     string
	SendRequestID bool
}

// Policy says which fields are forwarded between clients and one SSP. It never changes and is safe
// for concurrent use.
type Policy struct {
	options PolicyOptions // as given to NewPolicy
	pass    []string      // names in PolicyOptions.Pass
	dropped []string      // names in PolicyOptions.Remove and Set: the client's fields of these names are dropped
	set     []byte        // the lines of the fields in PolicyOptions.Set

	actions [3][nameIDs]action // indexed by untrustedPeer, trustedPeer or trustedPeerTruncate, then by nameID

	forwardedFor, deviceIP, deviceUserAgent bool // whether X-Forwarded-For, X-Device-IP and X-Device-User-Agent are sent

	via viaLines

	requestID     string // PolicyOptions.RequestID if it is valid, else ""
	sendRequestID bool
}

// action says how a policy handles a request field of one kind.
type action uint8

const (
	drop action = iota
	copyLine
	copyIfPassed     // copy if PolicyOptions.Pass has the name
	shortenAddrs     // copy with shortened addresses
	shortenForwarded // copy a Forwarded field (RFC 7239) with shortened addresses
)

// The rows of Policy.actions.
const (
	untrustedPeer = iota
	trustedPeer
	trustedPeerTruncate
)

// NewPolicy returns the policy that o describes. It ignores values that CheckPass, CheckSet and
// CheckRequestID refuse; the caller should have reported them.
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

	forwarding := o.Identity != XDevice && o.Identity != None
	device := o.Identity == XDevice || o.Identity == Both
	for row := range p.actions {
		for name := range nameGuarded { // the names before nameGuarded are those of ordinary fields
			p.actions[row][name] = copyLine
		}
		p.actions[row][nameGuarded] = copyIfPassed
	}
	if forwarding {
		row := &p.actions[trustedPeer]
		row[nameForwarded], row[nameForwardedAddr], row[nameForwardedOther] = copyLine, copyLine, copyLine
		row = &p.actions[trustedPeerTruncate]
		row[nameForwarded], row[nameForwardedAddr], row[nameForwardedOther] = shortenForwarded, shortenAddrs, shortenAddrs
	}
	if device {
		p.actions[trustedPeer][nameDeviceOther] = copyLine
		p.actions[trustedPeerTruncate][nameDeviceOther] = shortenAddrs
	}
	p.forwardedFor = forwarding && !p.Drops("x-forwarded-for")
	p.deviceIP = device && !p.Drops("x-device-ip")
	p.deviceUserAgent = device && !p.Drops("x-device-user-agent")
	if !p.Drops("via") {
		p.via = newViaLines(o.Via)
	}
	p.sendRequestID = o.SendRequestID && p.requestID != "" && !p.Drops(p.requestID)
	return p
}

// Sets reports whether the policy sets the field of this name, which a request to the SSP has. (Of a name that the policy
// only removes, Sets may say true, but no request to the SSP has such a field.)
func (p *Policy) Sets(name []byte) bool { return len(p.set) > 0 && p.drops(name) }

// Drops reports whether PolicyOptions.Remove or Set names the field, so that the client's field is not forwarded.
func (p *Policy) Drops(name string) bool { return p.drops([]byte(name)) }

// drops is Drops for a name as bytes. It compares names in any case and with '_' read as '-'.
func (p *Policy) drops(name []byte) bool {
	return slices.ContainsFunc(p.dropped, func(dropped string) bool { return sameName(name, dropped) })
}

// Dropped returns a text for each field of f that is not forwarded because of a setting. The text names the field and the
// setting. Fields that no proxy forwards, such as Connection, and fields that adbuffer writes itself have no text.
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
		case p.sends(field, id):
		case field.id == nameGuarded:
			why = "headers.pass does not name it"
		case field.id == nameLookAlike:
			why = "some servers read its '_' as '-'"
		case !id.trusted && p.actions[trustedPeer][field.id] != drop:
			why = "server.trusted_proxies does not contain the peer"
		default:
			why = "headers.identity decides whether it is forwarded"
		}
		if why != "" {
			all = append(all, string(field.Name)+": "+why)
		}
	}
	return all
}

// sends reports whether the SSP gets the field, whether adbuffer copies it from the client or writes it itself.
func (p *Policy) sends(field *Field, id *Identity) bool {
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

// passes reports whether PolicyOptions.Pass has the name, in any case.
func (p *Policy) passes(name []byte) bool {
	return slices.ContainsFunc(p.pass, func(passed string) bool { return syntax.EqualFold(name, passed) })
}

// With returns a policy like p that also sets the given fields; they replace fields of the same name that p sets. It is
// for start-up, not for each request: for example, legs that need Accept-Encoding: identity have a policy of their own.
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
		return fmt.Errorf("%s is an identity field; see identity", name)
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
