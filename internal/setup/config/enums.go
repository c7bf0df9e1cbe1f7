package config

import "adbuffer/internal/wire/handshake"

// Values of the types below are words from a closed set, which the tag words of a key lists. Further
// types of this kind are defined by the packages that use them.

// LogLevel is the least important level that is logged.
type LogLevel string

// LogFormat is the format of a log line.
type LogFormat string

// FormatConsole is readable text for a terminal. The other format is JSON.
const FormatConsole LogFormat = "console"

// PipelineMethods says which requests may be sent on a pipelined connection before the responses to
// earlier requests have arrived.
type PipelineMethods string

// PipelineAll allows every method. The other value allows idempotent methods only.
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
	ScopeInstance Scope = "instance" // each process has a limit of its own
	ScopeFleet    Scope = "fleet"    // all replicas share the limit
)

// OnError says which response a client gets if its request fails.
type OnError string

// OnErrorNoAd sends the route's no-ad response in place of the error's status.
const OnErrorNoAd OnError = "no_ad"

// Priority says which requests are refused first while adbuffer is overloaded.
type Priority string

// The priorities.
const (
	PriorityCritical  Priority = "critical"
	PriorityNormal    Priority = "normal"
	PrioritySheddable Priority = "sheddable"
)

// MergeOpenRTB merges the responses of all SSPs into one OpenRTB BidResponse.
const MergeOpenRTB = "openrtb"

// Privacy says how the client's address is changed before it is forwarded.
type Privacy string

// PrivacyTruncateIP forwards only the first 24 bits of an IPv4 address, and the first 56 of IPv6.
const PrivacyTruncateIP Privacy = "truncate_ip"
