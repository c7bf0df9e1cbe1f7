package httpheader

import "strconv"

// Rule is a rule of RFC 9112, or of ours, that a request's header block broke.
type Rule uint8

// The rules that Scan enforces.
const (
	RuleUnterminated     Rule = iota + 1 // the block does not end with an empty line, or goes on after it
	RuleFold                             // a line starts with a blank: obs-fold, section 5.2
	RuleBareLF                           // LF without CR, section 2.2
	RuleBareCR                           // CR without LF, section 2.2
	RuleNoColon                          // a line without a colon
	RuleEmptyName                        // nothing before the colon
	RuleNameBlank                        // a blank in or after a name, section 5.1
	RuleName                             // a name that is not a token
	RuleValue                            // NUL or another control byte in a value
	RuleHostMissing                      // no Host in an HTTP/1.1 request, section 3.2
	RuleHostRepeated                     // more than one Host, section 3.2
	RuleHost                             // a Host that is no host and port
	RuleLength                           // a Content-Length that is not one decimal number
	RuleLengthRepeated                   // more than one Content-Length, equal or not
	RuleEncoding                         // a Transfer-Encoding other than chunked, or in HTTP/1.0, section 6.1
	RuleEncodingRepeated                 // more than one Transfer-Encoding
	RuleBothFramings                     // Content-Length with Transfer-Encoding, section 6.3
	RuleTooManyOptions                   // Connection names more fields than we keep track of
	RuleTooManyFields                    // more fields than RequestFields.MaxFields
)

// Error is a refused header block. Its text is safe to send back: of the request it holds only the field's
// name, quoted and cut.
type Error struct {
	Rule  Rule
	Field string // the field's name, cut to 32 bytes; "" if the rule is about no single field
	Limit int    // of the two RuleTooMany, else 0
}

// Error says which field broke which rule.
func (e *Error) Error() string {
	text := "unknown rule"
	if int(e.Rule) < len(ruleTexts) && ruleTexts[e.Rule] != "" {
		text = ruleTexts[e.Rule]
	}
	if e.Limit > 0 {
		text += strconv.Itoa(e.Limit)
	}
	if e.Field == "" {
		return "header: " + text
	}
	return "header field " + strconv.Quote(e.Field) + ": " + text
}

var ruleTexts = [...]string{
	RuleUnterminated:     "no empty line at the end",
	RuleFold:             "line starts with a blank (obs-fold)",
	RuleBareLF:           "LF without CR",
	RuleBareCR:           "CR without LF",
	RuleNoColon:          "line without a colon",
	RuleEmptyName:        "empty field name",
	RuleNameBlank:        "blank in or after the name",
	RuleName:             "name is not a token",
	RuleValue:            "control byte in the value",
	RuleHostMissing:      "Host is missing",
	RuleHostRepeated:     "given more than once",
	RuleHost:             "not a host and port",
	RuleLength:           "not one decimal number",
	RuleLengthRepeated:   "given more than once",
	RuleEncoding:         "only chunked is supported, in HTTP/1.1",
	RuleEncodingRepeated: "given more than once",
	RuleBothFramings:     "Content-Length and Transfer-Encoding together",
	RuleTooManyOptions:   "names more fields than the limit of ",
	RuleTooManyFields:    "more fields than the limit of ",
}
