package config

import "adbuffer/internal/wire/handshake"

// The types below take one of a few words, which the tag words of a key lists. Others are types of the
// packages that use them.

// LogLevel is the least important level that is logged.
type LogLevel string

// LogFormat is the format of a log line.
type LogFormat string

// FormatConsole is for a person at a terminal; the other format is JSON.
const FormatConsole LogFormat = "console"

// PipelineMethods says which requests may be sent behind other requests on a pipelined connection.
type PipelineMethods string

// PipelineAll is every method, and not only GET and HEAD.
const PipelineAll PipelineMethods = "all"

// TLSVersion is a version of TLS.
type TLSVersion string

// TLS12 is the oldest version that adbuffer supports.
const TLS12 TLSVersion = "1.2"

// TLSGroup is a group of a TLS key exchange, by its IANA name.
type TLSGroup string

// Policy returns the policy for handshakes.
func (p TLSPolicy) Policy() handshake.Policy { return handshake.NewPolicy(p.MinVersion, p.Groups) }

// Scope says which processes share a limit.
type Scope string

// The scopes.
const (
	ScopeInstance Scope = "instance" // this process's own
	ScopeFleet    Scope = "fleet"    // of all replicas together
)

// OnError is the response to a client after a failure.
type OnError string

// OnErrorNoAd is the route's no-ad response, in place of the error's own status.
const OnErrorNoAd OnError = "no_ad"

// Priority says which requests are refused first while adbuffer is overloaded.
type Priority string

// The priorities.
const (
	PriorityCritical  Priority = "critical"
	PriorityNormal    Priority = "normal"
	PrioritySheddable Priority = "sheddable"
)

// MergeOpenRTB is one BidResponse of all responses.
const MergeOpenRTB = "openrtb"

// Privacy says how the client's address is changed before it is forwarded.
type Privacy string

// PrivacyTruncateIP keeps /24 of IPv4 and /56 of IPv6.
const PrivacyTruncateIP Privacy = "truncate_ip"
