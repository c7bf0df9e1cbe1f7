package header

import "strconv"

// Rule is a rule, of RFC 9112 or of adbuffer, that a request's header block violated, in words for the
// client.
type Rule string

// The rules that Scan enforces. Sections are RFC 9112's.
const (
	RuleUnterminated   Rule = "it does not end with one empty line"
	RuleFold           Rule = "a line that starts with a blank (obs-fold)" // 5.2; Error.Field names the field that the line would continue
	RuleBareLF         Rule = "LF without CR"                              // 2.2
	RuleBareCR         Rule = "CR without LF"                              // 2.2
	RuleNoColon        Rule = "no colon after the name"
	RuleEmptyName      Rule = "a line that starts with a colon"
	RuleNameBlank      Rule = "blank in or after the name" // 5.1
	RuleName           Rule = "the name has a byte that is not allowed in names"
	RuleValue          Rule = "control byte in the value"
	RuleRepeated       Rule = "given more than once"                            // Host, 3.2; Content-Length, equal or not, 6.3; Transfer-Encoding, 6.1
	RuleHostMissing    Rule = "Host is missing"                                 // in HTTP/1.1, 3.2
	RuleHost           Rule = "not a host and port"                             // 3.2
	RuleLength         Rule = "not one decimal number"                          // 6.3
	RuleEncoding       Rule = "only chunked is supported, and only in HTTP/1.1" // 6.1
	RuleBothFramings   Rule = "Content-Length and Transfer-Encoding together"   // 6.3
	RuleTooManyOptions Rule = "it names more fields than the limit of "         // maxOptions, of Connection
	RuleTooManyFields  Rule = "more fields than the limit of "                  // maxFields
)

// Error says why a header block is refused. Its text may be sent to the client: all that it contains of the request
// is the field's name, shortened and quoted.
type Error struct {
	Rule  Rule
	Field string // the field's name, cut to maxErrorName bytes; "" if the rule concerns no single field
	Limit int    // the limit of RuleTooManyOptions and RuleTooManyFields; otherwise 0
}

const maxErrorName = 32

// TooLarge reports whether the block exceeded a limit (status 431) rather than violated the protocol (status 400).
func (e *Error) TooLarge() bool { return e.Limit > 0 }

// Error names the field and the rule that it violates.
func (e *Error) Error() string {
	text := string(e.Rule)
	if e.Limit > 0 {
		text += strconv.Itoa(e.Limit)
	}
	if e.Field == "" {
		return "header: " + text
	}
	return "header field " + strconv.Quote(e.Field) + ": " + text
}

// refuse returns the error for a rule that the field called name violates.
func refuse(rule Rule, name []byte) error {
	return &Error{Rule: rule, Field: string(name[:min(len(name), maxErrorName)])}
}
