// Package config turns YAML into one valid, unchanging Config. It is the only user of viper.
//
// A key is a struct field here and a commented line in config/reference.yaml. The comment in that file is
// the operator's documentation of the key, and its description in the JSON Schema. If another package
// takes a section unchanged, that package defines the section's type. The tags of a field say the rest:
//
//   - yaml: the key's name.
//   - default: the value of an absent key.
//   - jsonschema: whether the key is required.
//   - empty: the rule that an empty text or list breaks. Without it, the value may be empty.
//   - min, max: the range of a number or duration. Every number and duration has one.
//   - at_most: keys of the same section that bound this key from above.
//   - needs: a key of the same section that must be set if this key is set.
//   - words: all values that a text may have.
//   - form: the name of the form that a text, or each element of a list, must have unless it is empty; see forms.
//   - unique: the key in which any two elements of a list must differ, ignoring case; "." is the element itself.
//   - text: "any" is a text of any length, with line breaks.
//   - reload: the Effect of a change. A key without this tag inherits the effect of its section.
//   - hide: how a possible secret in the value is hidden; see hiders.
package config

//go:generate go test . -run TestSchema -update
//go:generate go test ../../test/e2e/deploy -run OperatorsRelyOn -update

import (
	"net/netip"
	"time"

	"adbuffer/internal/machine/overload"
	"adbuffer/internal/request/route"
	"adbuffer/internal/ssp/balancer"
	"adbuffer/internal/ssp/dial"
	"adbuffer/internal/ssp/pool"
	"adbuffer/internal/ssp/ssp"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/header"
	"adbuffer/internal/wire/logs"
	"adbuffer/internal/wire/sample"
	"adbuffer/internal/wire/tcf"
)

// Config is the complete and valid configuration: defaults are filled in, ssp_defaults are
// merged into each SSP, every range and reference is checked. It never changes after Load;
// a reload makes a new one.
type Config struct {
	Server   Server   `yaml:"server" reload:"in place"`
	Admin    Admin    `yaml:"admin" reload:"in place"`
	Log      Log      `yaml:"log" reload:"in place"`
	Tracing  Tracing  `yaml:"tracing" reload:"in place"`
	Fleet    Fleet    `yaml:"fleet" reload:"restart"`
	Deadline Deadline `yaml:"deadline" reload:"in place"`
	SSPs     []SSP    `yaml:"ssps" jsonschema:"required" empty:"must have at least one SSP" unique:"name"`                       // at least one; names are unique
	Routes   []Route  `yaml:"routes" jsonschema:"required" empty:"must have at least one route" unique:"name" reload:"in place"` // at least one; the first match wins

	Machine Machine `yaml:"-"` // the machine on which the configuration was read
}

// document is the content of a file: a Config, and the settings that are merged into it.
type document struct {
	Config      `yaml:",inline"`
	SSPDefaults Settings `yaml:"ssp_defaults"`
}

// Server holds the settings of the traffic listener and of its clients' requests.
type Server struct {
	Listen           Address          `yaml:"listen" default:"127.0.0.1:8080" empty:"must be set, for example 127.0.0.1:8080" form:"listener" reload:"restart"` // host:port, or unix:/path
	SocketMode       FileMode         `yaml:"socket_mode" default:"0660" reload:"restart"`                                                                      // permissions of a unix socket; not used for TCP
	ReusePort        bool             `yaml:"reuse_port" reload:"restart"`                                                                                      // for both listeners, so that the next process can take over
	TLS              ServerTLS        `yaml:"tls" reload:"restart"`
	ProxyProtocol    bool             `yaml:"proxy_protocol" reload:"restart"` // required from TrustedProxies and from peers of a unix socket
	MaxConnections   int              `yaml:"max_connections" default:"65536" min:"1" max:"10000000"`
	MaxInFlight      int              `yaml:"max_in_flight" default:"16384" min:"1" max:"10000000"`               // requests and fan-out legs
	MaxUploads       int              `yaml:"max_uploads" default:"4096" min:"1" max:"10000000"`                  // requests whose body is still arriving
	MaxStreams       int              `yaml:"max_streams_per_conn" default:"250" min:"1" max:"10000"`             // streams of one HTTP/2 connection of a client
	H2C              bool             `yaml:"h2c"`                                                                // HTTP/2 in cleartext
	MaxBufferedBytes int              `yaml:"max_buffered_bytes" default:"268435456" min:"1" max:"1099511627776"` // bodies of requests and responses
	ReadTimeout      time.Duration    `yaml:"read_timeout" default:"5s" min:"1ms" max:"1h"`                       // for a header, and again for a body, each from its first byte
	WriteTimeout     time.Duration    `yaml:"write_timeout" default:"5s" min:"1ms" max:"1h"`
	IdleTimeout      time.Duration    `yaml:"idle_timeout" default:"75s" min:"1ms" max:"24h"`
	MaxHeaderBytes   int              `yaml:"max_header_bytes" default:"16384" min:"256" max:"1048576" reload:"restart"`
	MaxBodyBytes     int              `yaml:"max_body_bytes" default:"262144" min:"1" max:"1073741824"`
	AbortOnClose     bool             `yaml:"abort_on_close" default:"true"`                 // cancels the request, even if a client closes only its sending half
	TrustedProxies   []netip.Prefix   `yaml:"trusted_proxies" default:"127.0.0.0/8 ::1/128"` // prefixes without bits beyond their length
	HealthPath       string           `yaml:"health_path" form:"exact path"`                 // path that responds whether adbuffer is ready; "" = no such path on the traffic listener
	ErrorDetail      bool             `yaml:"error_detail" default:"true"`
	Via              bool             `yaml:"via" default:"true"` // add a Via field to requests to SSPs
	RequestID        RequestID        `yaml:"request_id"`
	ProxyStatus      bool             `yaml:"proxy_status"` // add a Proxy-Status field (RFC 9209) to responses
	Fairness         Fairness         `yaml:"fairness"`
	Overload         overload.Options `yaml:"overload"`
	BackgroundCPU    float64          `yaml:"background_cpu" default:"0.25" min:"0.01" max:"1024"` // cores
	Drain            Drain            `yaml:"drain"`
}

// Fairness says between which parties an SSP's places are shared while requests wait for them.
type Fairness struct {
	Key string `yaml:"key" form:"fairness key"` // client_ip, header:NAME, query:NAME or openrtb:/path; "" = no sharing
}

// RequestID identifies a request in responses, logs, captures and spans.
type RequestID struct {
	Header string `yaml:"header" default:"X-Request-Id" form:"request id field"` // "" = requests have no id
	ToSSP  bool   `yaml:"to_ssp"`
}

// ServerTLS is the certificate of the traffic listener. Its files are read again when they
// change.
type ServerTLS struct {
	CertFile     string `yaml:"cert_file" needs:"key_file"` // PEM; "" = no TLS
	KeyFile      string `yaml:"key_file" needs:"cert_file"` // PEM; set if CertFile is set, and only then
	ClientCAFile string `yaml:"client_ca_file"`             // PEM; "" = clients need no certificate
	TLSPolicy    `yaml:",inline" reload:"in place"`
}

// AdminTLS is the certificate of the admin listener. Its handshakes follow ServerTLS.TLSPolicy. For
// client certificates see Admin.ClientCAFile.
type AdminTLS struct {
	CertFile string `yaml:"cert_file" needs:"key_file"` // PEM; "" = no TLS
	KeyFile  string `yaml:"key_file" needs:"cert_file"` // PEM; set if and only if CertFile is
}

// TLSPolicy says which TLS handshakes are allowed.
type TLSPolicy struct {
	MinVersion TLSVersion `yaml:"min_version" default:"1.2" words:"1.2 1.3"`
	Groups     []TLSGroup `yaml:"groups" default:"X25519MLKEM768 SecP256r1MLKEM768 SecP384r1MLKEM1024 x25519 secp256r1 secp384r1 secp521r1" empty:"must name at least one group" unique:"."` // never empty, each once
}

// Drain says how the service stops.
type Drain struct {
	Delay   time.Duration `yaml:"delay" default:"5s" min:"0s" max:"10m"`   // time in which adbuffer says that it is not ready, but still accepts connections
	Timeout time.Duration `yaml:"timeout" default:"20s" min:"0s" max:"1h"` // time for the requests in flight to end, after Delay
}

// Admin is the operators' listener.
type Admin struct {
	Listen        Address       `yaml:"listen" default:"127.0.0.1:9090" empty:"must be set, for example 127.0.0.1:9090" form:"admin listener" reload:"restart"` // host:port
	TokenFile     string        `yaml:"token_file"`                                                                                                             // "" = no token
	TLS           AdminTLS      `yaml:"tls" reload:"restart"`
	ClientCAFile  string        `yaml:"client_ca_file" reload:"restart"` // PEM; a client certificate that it signed gives the same access as the token; needs TLS
	WarmupTimeout time.Duration `yaml:"warmup_timeout" default:"10s" min:"0s" max:"10m"`
	Capture       bool          `yaml:"capture"` // GET /capture shows exchanges
	// Sample keeps requests in memory, for dry runs and for trials of reloads.
	Sample Sample `yaml:"sample"`

	// Token is the content of TokenFile when the config was loaded, without the newline at its end;
	// empty if TokenFile is.
	Token Secret `yaml:"-"`
}

// Sample says how much of the traffic is kept, and which reloads are refused because of it.
type Sample struct {
	sample.Limits `yaml:",inline"`
	MaxChange     float64 `yaml:"max_change" min:"0" max:"1" needs:"requests"` // the largest change of a route's or an SSP's rate that a reload may make, as a share; 0 = any change
}

// Log says which lines adbuffer writes to standard error.
type Log struct {
	Level  LogLevel           `yaml:"level" default:"info" words:"debug info warn error"`
	Format LogFormat          `yaml:"format" default:"json" words:"json console" reload:"restart"`
	Access logs.AccessOptions `yaml:"access"`
}

// Tracing says which requests get spans, and where adbuffer sends them.
type Tracing struct {
	Endpoint string  `yaml:"endpoint" form:"URL of a receiver" hide:"url"` // http or https URL of an OTLP receiver; "" = no tracing
	Sample   float64 `yaml:"sample" default:"0.01" min:"0" max:"1"`        // share of requests that are traced, of those for which no trusted peer has decided
}

// Fleet says how replicas share the limits of SSPs whose qps.scope is fleet. ReplicaTimeout >= 20 *
// LeaseInterval.
type Fleet struct {
	Redis            Redis         `yaml:"redis"`
	Prefix           string        `yaml:"prefix" default:"adbuffer" empty:"must be set, for example adbuffer" form:"prefix of keys"` // of keys in Redis
	ExpectedReplicas int           `yaml:"expected_replicas" min:"0" max:"10000"`                                                     // at least 1 where an SSP's scope is fleet
	LeaseInterval    time.Duration `yaml:"lease_interval" default:"20ms" min:"5ms" max:"1s"`
	ReplicaTimeout   time.Duration `yaml:"replica_timeout" default:"3s" min:"200ms" max:"5m"`
}

// Redis is the server through which replicas share limits.
type Redis struct {
	Address      Address  `yaml:"address" form:"Redis"`           // host:port, or unix:/path; "" = no Redis
	Username     string   `yaml:"username" needs:"password_file"` // "" = the default user
	PasswordFile string   `yaml:"password_file"`                  // "" = no password
	DB           int      `yaml:"db" min:"0" max:"65535"`
	TLS          RedisTLS `yaml:"tls"`

	// Password is the content of PasswordFile when the config was loaded, without the newline at
	// its end; empty if PasswordFile is.
	Password Secret `yaml:"-"`
}

// RedisTLS is adbuffer's certificate for Redis, and how it verifies Redis.
type RedisTLS struct {
	Enabled   bool `yaml:"enabled"`
	ClientTLS `yaml:",inline"`
}

// Deadline says how long a request may take.
type Deadline struct {
	Default     time.Duration `yaml:"default" default:"300ms" min:"1ms" max:"10m" at_most:"max"`
	Max         time.Duration `yaml:"max" default:"5s" min:"1ms" max:"10m"`
	Header      string        `yaml:"header" default:"X-Adbuffer-Timeout-Ms" form:"deadline field"` // "" = no header sets it
	OpenRTBTmax bool          `yaml:"openrtb_tmax" default:"true"`
	Reserve     time.Duration `yaml:"reserve" default:"5ms" min:"0s" max:"10s"`
	MinBudget   time.Duration `yaml:"min_budget" default:"5ms" min:"0s" max:"10s"`
}

// SSP is one upstream ad server.
type SSP struct {
	Name      string     `yaml:"name" jsonschema:"required" empty:"must be set" form:"name" reload:"new pool"` // [a-z0-9_-]+
	Endpoints []Endpoint `yaml:"endpoints" jsonschema:"required" empty:"must have at least one URL" reload:"new pool"`
	Settings  `yaml:",inline" reload:"in place"`

	Parsed exchange.Endpoints `yaml:"-"` // the URLs of Endpoints; validation sets it
}

// Endpoint is where an SSP receives requests. In YAML it is the URL alone, or a mapping. The URLs of an
// SSP share scheme, path and query.
type Endpoint struct {
	URL      string `yaml:"url" jsonschema:"required" hide:"url"`  // http or https
	Weight   int    `yaml:"weight" default:"1" min:"1" max:"1000"` // its share of the requests is its weight, divided by the sum of all weights
	Priority int    `yaml:"priority" min:"0" max:"100"`            // of the endpoints that work, those with the lowest number get the requests
}

// Settings are the keys of ssp_defaults and of each SSP.
type Settings struct {
	Protocol               dial.Mode           `yaml:"protocol" default:"auto" words:"auto http1 http1-pipelined http2 h2c" reload:"new pool"`
	MaxInFlight            int                 `yaml:"max_in_flight" min:"0" max:"10000000"` // 0 = only the global limit
	Pool                   Pool                `yaml:"pool"`
	Timeouts               Timeouts            `yaml:"timeouts"`
	TLS                    SSPTLS              `yaml:"tls" reload:"new pool"`
	Headers                Headers             `yaml:"headers"`
	Host                   string              `yaml:"host" form:"host and port"` // "" = the endpoint's
	Identity               header.IdentityMode `yaml:"identity" default:"x_forwarded_for" words:"x_forwarded_for x_device both none"`
	MaxResponseBytes       int                 `yaml:"max_response_bytes" default:"1048576" min:"1" max:"1073741824" reload:"new connections"`
	MaxResponseHeaderBytes int                 `yaml:"max_response_header_bytes" default:"16384" min:"256" max:"1048576" reload:"new connections"`
	MaxBufferedBytes       int                 `yaml:"max_buffered_bytes" min:"0" max:"1099511627776"` // limit on the requests and responses held at once; see BufferedBytesLimit
	NoBidBody              ssp.NoBidBody       `yaml:"no_bid_body" default:"none" words:"none vast openrtb"`
	RewriteTmax            bool                `yaml:"rewrite_tmax"`
	TmaxMargin             time.Duration       `yaml:"tmax_margin" min:"0s" max:"10m" needs:"rewrite_tmax"` // subtracted from the tmax that RewriteTmax writes; below Timeouts.Request
	When                   []BodyCondition     `yaml:"when"`                                                // no route asks the SSP unless all conditions hold
	Remove                 []Removal           `yaml:"remove"`                                              // members of the body that the SSP does not get
	Set                    []Set               `yaml:"set"`                                                 // members of the body that the SSP gets another value of
	Compress               ssp.CompressOptions `yaml:"compress"`
	QPS                    QPS                 `yaml:"qps"`
	Retry                  Retry               `yaml:"retry"`
	Hedge                  ssp.HedgeOptions    `yaml:"hedge"`
	Breaker                ssp.BreakerOptions  `yaml:"breaker"`
	Ejection               balancer.Ejection   `yaml:"ejection"`
	HealthCheck            pool.HealthCheck    `yaml:"health_check"`
	SlowStart              time.Duration       `yaml:"slow_start" min:"0s" max:"1h"`                    // 0 = a recovered endpoint gets its full share at once
	SourceAddresses        []netip.Addr        `yaml:"source_addresses" unique:"." reload:"new pool"`   // used in turn to connect from; empty = the system chooses
	RetryAfterMax          time.Duration       `yaml:"retry_after_max" default:"30s" min:"0s" max:"1h"` // 0 = Retry-After pauses nothing
	RetryAfterShare        float64             `yaml:"retry_after_share" default:"0.5" min:"0" max:"1"` // 0 = a single response is enough to pause
}

// Pool bounds the connections to one SSP, over all its endpoints, and the requests that wait
// for them.
type Pool struct {
	MaxConns           int             `yaml:"max_conns" default:"256" min:"1" max:"65536"`                         // open + dialling
	MaxHTTP2Conns      int             `yaml:"max_http2_conns" default:"4" min:"1" max:"65536" at_most:"max_conns"` // how many of MaxConns may be HTTP/2; the default is never above MaxConns
	Auto               pool.AutoSize   `yaml:"auto"`
	MinIdle            int             `yaml:"min_idle" min:"0" max:"65536" at_most:"max_conns max_idle"` // kept warm
	MaxIdle            int             `yaml:"max_idle" min:"0" max:"65536" at_most:"max_conns"`          // the default is MaxConns; 0 = each request uses a connection of its own
	IdleTimeout        time.Duration   `yaml:"idle_timeout" default:"55s" min:"1ms" max:"24h"`
	MaxAge             time.Duration   `yaml:"max_age" default:"10m" min:"1ms" max:"168h"`        // ±10 % jitter
	MaxRequestsPerConn int             `yaml:"max_requests_per_conn" min:"0" max:"1000000000"`    // 0 = no limit
	MaxPending         int             `yaml:"max_pending" default:"512" min:"-1" max:"10000000"` // 0 = no queue, -1 = only max_in_flight bounds it
	PendingTimeout     time.Duration   `yaml:"pending_timeout" default:"50ms" min:"1ms" max:"10m"`
	MaxDials           int             `yaml:"max_dials" default:"16" min:"1" max:"65536"` // at once
	DialBackoff        Backoff         `yaml:"dial_backoff"`
	MaxStreamsPerConn  int             `yaml:"max_streams_per_conn" default:"100" min:"1" max:"16384" reload:"new connections"` // HTTP/2; the peer may allow fewer
	PipelineDepth      int             `yaml:"pipeline_depth" default:"8" min:"1" max:"1024" reload:"new connections"`          // http1-pipelined
	PipelineMethods    PipelineMethods `yaml:"pipeline_methods" default:"idempotent" words:"idempotent all"`                    // http1-pipelined
	Linger             time.Duration   `yaml:"linger" default:"200ms" min:"0s" max:"1m" reload:"new connections"`               // 0 = an abandoned exchange closes its connection
}

// Backoff is the wait after failed dials to one address. It doubles from Min to Max.
type Backoff struct {
	Min time.Duration `yaml:"min" default:"100ms" min:"1ms" max:"1h" at_most:"max"`
	Max time.Duration `yaml:"max" default:"5s" min:"1ms" max:"1h"`
}

// Timeouts bound the steps of one exchange. The request's deadline bounds all of them together.
type Timeouts struct {
	Connect      time.Duration `yaml:"connect" default:"250ms" min:"1ms" max:"10m"`
	TLSHandshake time.Duration `yaml:"tls_handshake" default:"500ms" min:"1ms" max:"10m"`
	Request      time.Duration `yaml:"request" min:"0s" max:"10m"` // 0 = the deadline alone
}

// SSPTLS says how adbuffer uses TLS to an SSP. It is not used for http endpoints.
type SSPTLS struct {
	ClientTLS `yaml:",inline"`
	TLSPolicy `yaml:",inline"`
}

// ClientTLS is adbuffer's certificate for a server, and how it verifies the server.
type ClientTLS struct {
	ServerName         string `yaml:"server_name" form:"host"`    // "" = the address's host
	CAFile             string `yaml:"ca_file"`                    // PEM; "" = the system's authorities
	CertFile           string `yaml:"cert_file" needs:"key_file"` // PEM; "" = no client certificate
	KeyFile            string `yaml:"key_file" needs:"cert_file"` // PEM; set if and only if CertFile is
	InsecureSkipVerify bool   `yaml:"insecure_skip_verify"`
}

// Headers says how the fields that adbuffer forwards differ from the usual fields. Remove is applied
// before Set. Names are RFC 9110 tokens in the operator's spelling.
type Headers struct {
	Pass   []string           `yaml:"pass" form:"passed field" unique:"."`
	Remove []string           `yaml:"remove" form:"forwarded field" unique:"."`
	Set    []header.NameValue `yaml:"set" unique:"name"` // names are unique
}

// QPS is a token bucket before the pool.
type QPS struct {
	Limit  float64          `yaml:"limit" min:"0" max:"10000000"`                    // requests a second; 0 = unlimited
	Burst  int              `yaml:"burst" min:"0" max:"10000000"`                    // 0 = a default that follows from Limit
	Scope  Scope            `yaml:"scope" default:"instance" words:"instance fleet"` // who shares Limit
	DryRun bool             `yaml:"dry_run"`                                         // count the requests beyond Limit, but send them
	Shape  ssp.ShapeOptions `yaml:"shape"`
}

// Options returns the options of the limit, without the source of tokens that replicas share.
func (q *QPS) Options() ssp.QPSOptions {
	return ssp.QPSOptions{Limit: q.Limit, Burst: q.Burst, DryRun: q.DryRun, Shaped: len(q.Shape.Keys) > 0}
}

// Retry says which failed requests are sent again.
type Retry struct {
	Max   int            `yaml:"max" default:"1" min:"0" max:"10"`
	Stale ssp.RetryStale `yaml:"stale" default:"idempotent" words:"idempotent all never"`
}

// Route says which requests go to which SSPs, and how.
type Route struct {
	Name         string     `yaml:"name" jsonschema:"required" empty:"must be set" form:"name"` // [a-z0-9_-]+, not "none"
	Match        Match      `yaml:"match" jsonschema:"required"`
	Mode         route.Mode `yaml:"mode" default:"single" words:"single split waterfall parallel-first parallel-all"`
	SSPs         []RouteSSP `yaml:"ssps" jsonschema:"required" empty:"must have at least one SSP" unique:"name"` // at least one, none twice, each a name of Config.SSPs
	Priority     Priority   `yaml:"priority" default:"normal" words:"critical normal sheddable"`
	ClientChoice bool       `yaml:"client_choice"`
	OnError      OnError    `yaml:"on_error" default:"status" words:"status no_ad"`
	NoAd         route.NoAd `yaml:"no_ad" default:"empty" words:"empty vast openrtb"`

	Merge         string   `yaml:"merge" form:"merge"`                                         // parallel-all only; "" = the envelope
	OnErrorStatus []string `yaml:"on_error_status" default:"4xx 5xx" form:"status" unique:"."` // statuses of SSPs that OnErrorNoAd replaces
	Privacy       Privacy  `yaml:"privacy" default:"none" words:"none truncate_ip"`
	Mirror        Mirror   `yaml:"mirror"`

	CORS route.CORS `yaml:"cors"`
}

// Mirror sends copies of a route's requests to another SSP. Clients do not see its responses.
type Mirror struct {
	SSP   string  `yaml:"ssp"` // a name of Config.SSPs that the route's SSPs do not have; "" = no mirror
	Share float64 `yaml:"share" default:"0.1" min:"0" max:"1"`
}

// Match holds conditions on a request that must all be true.
type Match struct {
	Path   string            `yaml:"path" jsonschema:"required" empty:"must be set; \"/*\" is every path" form:"path"` // exact, or a prefix if it ends in "/*": "/a/*" matches "/a/" and "/a/b", not "/a"
	Host   string            `yaml:"host" form:"host pattern"`                                                         // lower case, no port: exact, or "*.example.com" for any name below it; "" = any
	Query  []route.Condition `yaml:"query"`                                                                            // raw bytes, no decoding
	Header []route.Condition `yaml:"header"`                                                                           // names match in any case

	OpenRTB  []BodyCondition `yaml:"openrtb"`                  // conditions on the body
	Holdback float64         `yaml:"holdback" min:"0" max:"1"` // share of the matching requests that are passed on to later routes
}

// Removal removes a member from the OpenRTB body that an SSP gets, if all conditions hold.
type Removal struct {
	Path string          `yaml:"path" jsonschema:"required" empty:"must be set" form:"OpenRTB path"`
	When []BodyCondition `yaml:"when,omitempty"`
}

// Set gives a member of the OpenRTB body that an SSP gets a value, if all conditions hold. Exactly one of Value, Append and
// Default is set.
type Set struct {
	Path    string          `yaml:"path" jsonschema:"required" empty:"must be set" form:"member to set"`
	Value   *JSON           `yaml:"value,omitempty"`   // the member gets this value
	Append  *JSON           `yaml:"append,omitempty"`  // this is appended to the array that the member is
	Default *JSON           `yaml:"default,omitempty"` // the member gets this value if there is no such member
	When    []BodyCondition `yaml:"when,omitempty"`
}

// BodyCondition is a condition on members of an OpenRTB body, or on the user's consent. Either Path and exactly one of
// In, NotIn and Exists are set, or only TCF.
type BodyCondition struct {
	Path   string      `yaml:"path,omitempty" form:"OpenRTB path"`
	In     []JSONValue `yaml:"in,omitempty" empty:"must have at least one value" hide:"condition"`
	NotIn  []JSONValue `yaml:"not_in,omitempty" empty:"must have at least one value" hide:"condition"`
	Exists *bool       `yaml:"exists,omitempty"`
	TCF    *TCF        `yaml:"tcf,omitempty"`
}

// TCF is the condition that a vendor may process the request.
type TCF struct {
	tcf.Requirement `yaml:",inline"`
	Allowed         *bool `yaml:"allowed,omitempty"` // false = that the vendor may not; nil = true
}

// Denies reports whether the condition is that the vendor may not process the request.
func (t *TCF) Denies() bool { return t.Allowed != nil && !*t.Allowed }

// RouteSSP is an SSP's part in a route. In YAML it is the name alone, or a mapping.
type RouteSSP struct {
	Name      string        `yaml:"name" jsonschema:"required" empty:"must be set"`
	Weight    int           `yaml:"weight" min:"0" max:"1000000"` // split only, with the default 1; 0 = only requests whose client chose the SSP
	Timeout   time.Duration `yaml:"timeout" min:"0s" max:"10m"`   // waterfall only; 0 = the deadline alone
	Secondary bool          `yaml:"secondary"`                    // parallel-all only: the response does not wait for this SSP

	When []BodyCondition `yaml:"when"` // beside those of the SSP
}
