// Package tcf decides whether a vendor may process a request, by consent strings of version 2 of IAB Europe's
// Transparency and Consent Framework. It reads no vendor list: the operator names the purposes that the vendor needs.
package tcf

import (
	"bytes"
	"encoding/base64"
	"fmt"

	"github.com/prebid/go-gdpr/api"
	"github.com/prebid/go-gdpr/consentconstants"
	tcf2 "github.com/prebid/go-gdpr/vendorconsent/tcf2"
)

// Requirement is the legal basis that a vendor needs to process a request to which the GDPR applies: the user's consent
// to the vendor and to Purposes, and a legitimate interest for the vendor and for LegitimateInterests. A vendor that has
// only LegitimateInterests needs no consent.
type Requirement struct {
	Vendor              int   `yaml:"vendor" jsonschema:"required" min:"1" max:"65535"` // its id in the Global Vendor List
	Purposes            []int `yaml:"purposes,omitempty" min:"1" max:"24" unique:"."`
	LegitimateInterests []int `yaml:"legitimate_interests,omitempty" min:"1" max:"24" unique:"."` // ids of purposes
}

// Decision says whether a vendor may process a request, and why.
type Decision uint8

// The decisions.
const (
	Allowed       Decision = iota // the consent string grants all that is required
	NotApplicable                 // the request does not say that the GDPR applies
	NoConsent                     // there is no consent string, or it grants too little
	Unreadable                    // the consent string is malformed, or the body that may contain it is unreadable

	// Decisions is the number of decisions, for arrays indexed by Decision.
	Decisions
)

var names = [Decisions]string{"allowed", "not_applicable", "no_consent", "unreadable"}

// String returns the value of the metrics' label decision.
func (d Decision) String() string { return names[d] }

// Allows reports whether the vendor may process the request.
func (d Decision) Allows() bool { return d <= NotApplicable }

// Consent is what a request says about consent. It does not change, so any number of goroutines may use it.
type Consent struct {
	decision   Decision           // for all requirements; Allowed = decoded decides
	decoded    api.VendorConsents // the decoded string, a tcf2.ConsentMetadata
	restricted uint64             // a bit for each purpose that has a publisher restriction
}

var (
	notApplicable = &Consent{decision: NotApplicable}
	missing       = &Consent{decision: NoConsent}
	unreadable    = &Consent{decision: Unreadable}
)

// maxText bounds the length of the core segment of a consent string. A core segment with a publisher restriction on many
// vendors for each purpose has a few thousand characters. The time that New takes grows with the number of ranges of
// vendors, and fewer than 2900 ranges fit into a segment.
const maxText = 8 << 10

// OfUnreadable returns the Consent of a request that cannot be read, which allows nothing.
func OfUnreadable() *Consent { return unreadable }

// New returns the Consent of a request. applies says whether the GDPR applies, and text is the consent string, empty if
// the request has none. New keeps no reference to text.
func New(applies bool, text []byte) *Consent {
	core, _, _ := bytes.Cut(text, []byte{'.'})
	switch {
	case !applies:
		return notApplicable
	case len(text) == 0:
		return missing
	case len(core) > maxText || !bytes.HasPrefix(core, []byte{'C'}): // C stands for version 2
		return unreadable
	case bytes.IndexByte(core, '\r') >= 0, bytes.IndexByte(core, '\n') >= 0: // which package base64 skips
		return unreadable
	}
	data := make([]byte, base64.RawURLEncoding.DecodedLen(len(core)))
	n, err := base64.RawURLEncoding.Decode(data, core)
	restricted, valid := check(data[:n])
	if err != nil || !valid {
		return unreadable
	}
	return decode(data[:n], restricted)
}

// decode decodes a string that check has found to be valid. The decoder of package tcf2 panics on some malformed
// strings. check rejects all of them that are known, and recover guards against others.
func decode(data []byte, restricted uint64) (c *Consent) {
	defer func() {
		if recover() != nil {
			c = unreadable
		}
	}()
	decoded, err := tcf2.Parse(data)
	if err != nil {
		return unreadable
	}
	return &Consent{decoded: decoded, restricted: restricted}
}

// Decide returns whether the vendor of r may process the request.
func (c *Consent) Decide(r *Requirement) Decision {
	d, _, _ := c.find(r)
	return d
}

// Lack describes, for people, the first reason why the vendor of r may not process the request. It returns "" if the
// vendor may.
func (c *Consent) Lack(r *Requirement) string {
	_, format, id := c.find(r)
	if format == "" {
		return ""
	}
	return fmt.Sprintf(format, id)
}

// The types of publisher restrictions.
const (
	notAllowed = iota
	requireConsent
	requireLegitimateInterest
)

// find returns the decision, and for Lack a format and the id of the vendor or purpose to format with it.
func (c *Consent) find(r *Requirement) (d Decision, lack string, id int) {
	switch c.decision {
	case Unreadable:
		return Unreadable, "the request has no readable TCF 2 consent string for vendor %d", r.Vendor
	case NoConsent:
		return NoConsent, "the GDPR applies, and the request has no consent string for vendor %d", r.Vendor
	case NotApplicable:
		return NotApplicable, "", 0
	}
	vendor, m := uint16(r.Vendor), c.decoded.(tcf2.ConsentMetadata)
	if (len(r.Purposes) > 0 || len(r.LegitimateInterests) == 0) && !m.VendorConsent(vendor) {
		return NoConsent, "vendor %d has no consent", r.Vendor
	}
	restricts := func(purpose int, kind uint8) bool {
		return c.restricted>>purpose&1 != 0 && m.CheckPubRestriction(uint8(purpose), kind, vendor)
	}
	for _, p := range r.Purposes {
		switch {
		case !m.PurposeAllowed(consentconstants.Purpose(p)):
			return NoConsent, "purpose %d has no consent", p
		case restricts(p, notAllowed):
			return NoConsent, "a publisher restriction forbids purpose %d", p
		case restricts(p, requireLegitimateInterest):
			return NoConsent, "a publisher restriction requires legitimate interest for purpose %d", p
		}
	}
	if len(r.LegitimateInterests) > 0 && !m.VendorLegitInterest(vendor) {
		return NoConsent, "vendor %d has no legitimate interest", r.Vendor
	}
	for _, p := range r.LegitimateInterests {
		switch {
		case !m.PurposeLITransparency(consentconstants.Purpose(p)):
			return NoConsent, "purpose %d has no legitimate interest", p
		case restricts(p, notAllowed):
			return NoConsent, "a publisher restriction forbids purpose %d", p
		case restricts(p, requireConsent):
			return NoConsent, "a publisher restriction requires consent for purpose %d", p
		}
	}
	return Allowed, "", 0
}
