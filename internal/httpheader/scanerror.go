package httpheader

import "strconv"

// Rule is a rule, of RFC 9112 or of adbuffer, that a request's header block violated.
type Rule uint8

// The rules that Scan enforces. Sections are RFC 9112's.
const (
	RuleUnterminated     Rule = iota + 1 // the block does not end with its one empty line
	RuleFold                             // a line that starts with a blank: obs-fold, 5.2; Field is the one it would continue
	RuleBareLF                           // LF without CR, 2.2
	RuleBareCR                           // CR without LF, 2.2
	RuleNoColon                          // a line without a colon
	RuleEmptyName                        // nothing before the colon
	RuleNameBlank                        // a blank in or after the name, 5.1
	RuleName                             // a name that is not a token
	RuleValue                            // NUL or another control byte in a value
	RuleHostMissing                      // no Host in an HTTP/1.1 request, 3.2
	RuleHostRepeated                     // more than one Host, 3.2
	RuleHost                             // a Host with bytes that are not allowed in a host and port, 3.2
	RuleLength                           // a Content-Length that is not one decimal number, 6.3
	RuleLengthRepeated                   // more than one Content-Length, equal or not, 6.3
	RuleEncoding                         // a Transfer-Encoding other than chunked, or in HTTP/1.0, 6.1
	RuleEncodingRepeated                 // more than one Transfer-Encoding, 6.1
	RuleBothFramings                     // Content-Length with Transfer-Encoding, 6.3
	RuleTooManyOptions                   // Connection names more fields than maxOptions
	RuleTooManyFields                    // more fields than maxFields
)

// Error is a refused header block. Its text may be sent to the client: from the request it contains
// only the field's name, shortened and quoted.
type Error struct {
	Rule  Rule
	Field string // the field's name, cut to maxErrorName bytes; "" if the rule concerns no single field
	Limit int    // of RuleTooManyOptions and RuleTooManyFields, else 0
}

const maxErrorName = 32

// TooLarge reports whether the block exceeded a limit (status 431), and did not violate the
// protocol (400).
func (e *Error) TooLarge() bool { return e.Limit > 0 }

// Error names the field and the rule that it violates.
func (e *Error) Error() string {
	text := ruleTexts[e.Rule]
	if e.Limit > 0 {
		text += strconv.Itoa(e.Limit)
	}
	if e.Field == "" {
		return "header: " + text
	}
	return "header field " + strconv.Quote(e.Field) + ": " + text
}

var ruleTexts = [...]string{
	0:                    "malformed",
	RuleUnterminated:     "it does not end with one empty line",
	RuleFold:             "a line that starts with a blank (obs-fold)",
	RuleBareLF:           "LF without CR",
	RuleBareCR:           "CR without LF",
	RuleNoColon:          "no colon after the name",
	RuleEmptyName:        "a line that starts with a colon",
	RuleNameBlank:        "blank in or after the name",
	RuleName:             "the name has a byte that is not allowed in names",
	RuleValue:            "control byte in the value",
	RuleHostMissing:      "Host is missing",
	RuleHostRepeated:     "given more than once",
	RuleHost:             "not a host and port",
	RuleLength:           "not one decimal number",
	RuleLengthRepeated:   "given more than once",
	RuleEncoding:         "only chunked is supported, and only in HTTP/1.1",
	RuleEncodingRepeated: "given more than once",
	RuleBothFramings:     "Content-Length and Transfer-Encoding together",
	RuleTooManyOptions:   "it names more fields than the limit of ",
	RuleTooManyFields:    "more fields than the limit of ",
}

// refuse returns the error for a rule that the field called name violates.
func refuse(rule Rule, name []byte) error {
	return &Error{Rule: rule, Field: string(name[:min(len(name), maxErrorName)])}
}
