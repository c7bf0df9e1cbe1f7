package config

import "adbuffer/internal/handshake"

// The types below take one of a few words. Each type's words method lists them in
// the order in which messages and the JSON Schema print them.

// LogLevel is the least important level that is logged.
type LogLevel string

// The log levels.
const (
	LevelDebug LogLevel = "debug"
	LevelInfo  LogLevel = "info"
	LevelWarn  LogLevel = "warn"
	LevelError LogLevel = "error"
)

func (LogLevel) words() []string { return words(LevelDebug, LevelInfo, LevelWarn, LevelError) }

// LogFormat is the format of a log line.
type LogFormat string

// The log formats.
const (
	FormatJSON    LogFormat = "json"
	FormatConsole LogFormat = "console"
)

func (LogFormat) words() []string { return words(FormatJSON, FormatConsole) }

// Protocol is the protocol of the connections to an SSP.
type Protocol string

// The protocols. ProtocolAuto is ALPN's choice on https and HTTP/1.1 on http.
const (
	ProtocolAuto           Protocol = "auto"
	ProtocolHTTP1          Protocol = "http1"
	ProtocolHTTP1Pipelined Protocol = "http1-pipelined"
	ProtocolHTTP2          Protocol = "http2" // https only
	ProtocolH2C            Protocol = "h2c"   // http only
)

func (Protocol) words() []string {
	return words(ProtocolAuto, ProtocolHTTP1, ProtocolHTTP1Pipelined, ProtocolHTTP2, ProtocolH2C)
}

// PipelineMethods says which requests may be sent behind other requests on a pipelined connection.
type PipelineMethods string

// PipelineIdempotent is GET and HEAD.
const (
	PipelineIdempotent PipelineMethods = "idempotent"
	PipelineAll        PipelineMethods = "all"
)

func (PipelineMethods) words() []string { return words(PipelineIdempotent, PipelineAll) }

// TLSVersion is a version of TLS.
type TLSVersion string

// TLS12 is the oldest version that adbuffer supports.
const (
	TLS12 TLSVersion = "1.2"
	TLS13 TLSVersion = "1.3"
)

func (TLSVersion) words() []string { return handshake.VersionNames() }

// TLSGroup is a group of a TLS key exchange, by its IANA name.
type TLSGroup string

func (TLSGroup) words() []string { return handshake.GroupNames() }

// Policy returns the policy for handshakes.
func (p TLSPolicy) Policy() handshake.Policy { return handshake.NewPolicy(p.MinVersion, p.Groups) }

// Identity is how an SSP learns the client's address.
type Identity string

// The identities. IdentityXDevice is X-Device-IP and X-Device-User-Agent (VAST 4).
const (
	IdentityXForwardedFor Identity = "x_forwarded_for"
	IdentityXDevice       Identity = "x_device"
	IdentityBoth          Identity = "both"
	IdentityNone          Identity = "none"
)

func (Identity) words() []string {
	return words(IdentityXForwardedFor, IdentityXDevice, IdentityBoth, IdentityNone)
}

// NoBidBody is the format in which a 200 can say that there is no ad.
type NoBidBody string

// The formats. With NoBidNone every 200 that has a body is a fill.
const (
	NoBidNone    NoBidBody = "none"
	NoBidVAST    NoBidBody = "vast"
	NoBidOpenRTB NoBidBody = "openrtb"
)

func (NoBidBody) words() []string { return words(NoBidNone, NoBidVAST, NoBidOpenRTB) }

// RetryStale says which requests are sent again after a reused connection closed
// before any byte of a response.
type RetryStale string

// RetryIdempotent is GET and HEAD.
const (
	RetryIdempotent RetryStale = "idempotent"
	RetryAll        RetryStale = "all"
	RetryNever      RetryStale = "never"
)

func (RetryStale) words() []string { return words(RetryIdempotent, RetryAll, RetryNever) }

// Scope says which processes share a limit.
type Scope string

// The scopes.
const (
	ScopeInstance Scope = "instance" // this process's own
	ScopeFleet    Scope = "fleet"    // of all replicas together
)

func (Scope) words() []string { return words(ScopeInstance, ScopeFleet) }

// Mode is how a route uses its SSPs.
type Mode string

// The modes.
const (
	ModeSingle        Mode = "single"         // the first
	ModeSplit         Mode = "split"          // one, by weight
	ModeWaterfall     Mode = "waterfall"      // in order, until one fills
	ModeParallelFirst Mode = "parallel-first" // all; the first fill is the response
	ModeParallelAll   Mode = "parallel-all"   // all; every response in one document
)

func (Mode) words() []string {
	return words(ModeSingle, ModeSplit, ModeWaterfall, ModeParallelFirst, ModeParallelAll)
}

// OnError is the response to a client after a failure.
type OnError string

// Values of OnError.
const (
	OnErrorStatus OnError = "status" // the error's own status
	OnErrorNoAd   OnError = "no_ad"  // the route's no-ad response
)

func (OnError) words() []string { return words(OnErrorStatus, OnErrorNoAd) }

// NoAd is a route's no-ad response.
type NoAd string

// The no-ad responses.
const (
	NoAdEmpty NoAd = "empty" // 204
	NoAdVAST  NoAd = "vast"  // 200 with an empty VAST document
)

func (NoAd) words() []string { return words(NoAdEmpty, NoAdVAST) }

// Privacy says how the client's address is changed before it is forwarded.
type Privacy string

// The privacy settings. PrivacyTruncateIP keeps /24 of IPv4 and /56 of IPv6.
const (
	PrivacyNone       Privacy = "none"
	PrivacyTruncateIP Privacy = "truncate_ip"
)

func (Privacy) words() []string { return words(PrivacyNone, PrivacyTruncateIP) }

func words[T ~string](all ...T) []string {
	list := make([]string, len(all))
	for i, w := range all {
		list[i] = string(w)
	}
	return list
}
