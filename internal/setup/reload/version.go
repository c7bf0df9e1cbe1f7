package reload

import (
	"slices"
	"time"

	"adbuffer/internal/machine/configfile"
	"adbuffer/internal/request/route"
	"adbuffer/internal/setup/config"
	"adbuffer/internal/ssp/dial"
	"adbuffer/internal/ssp/pool"
	"adbuffer/internal/ssp/ssp"
	"adbuffer/internal/wire/tracing"
)

// Version is a config version: the parts that one configuration built. It never changes. A reload
// builds the next version, which shares the unchanged parts with this one.
type Version struct {
	Config *config.Config
	Hash   func() string // returns the hash of Config
	Loaded time.Time     // when the version came into force
	Parts  []*Part       // one for each SSP, in the configuration's order
	Table  *route.Table
	Tracer *tracing.Tracer // nil while tracing is off

	// SSPs and Pools are the SSPs and pools of Parts.
	SSPs  []*ssp.SSP
	Pools []*pool.Pool

	common common
}

// Part is one SSP of a version.
type Part struct {
	Config *config.SSP
	SSP    *ssp.SSP

	dialer *dialer            // dialer of the SSP's pool
	files  configfile.Content // content of the TLS files when the dialer was made
}

// Part returns the SSP of that name, or nil.
func (v *Version) Part(name string) *Part {
	for _, p := range v.Parts {
		if p.Config.Name == name {
			return p
		}
	}
	return nil
}

// without returns the parts of v whose pools are not in next.
func (v *Version) without(next *Version) []*Part {
	return slices.DeleteFunc(slices.Clone(v.Parts), func(p *Part) bool { return slices.Contains(next.Pools, p.SSP.Pool()) })
}

// common holds the settings from other sections of the configuration that every SSP needs.
type common struct {
	patience         time.Duration // the time that a request without a deadline of its own gives an SSP
	via              string        // the name of this process in Via; "" = requests get no Via
	maxBufferedBytes int           // the limit in force of server.max_buffered_bytes
	maxBodyBytes     int
	requestID        config.RequestID
	fair             bool // server.fairness.key is set
}

func commonOf(cfg *config.Config, via string) common {
	c := common{patience: cfg.Deadline.Default - cfg.Deadline.Reserve, maxBufferedBytes: cfg.MaxBufferedBytes().Value, maxBodyBytes: cfg.Server.MaxBodyBytes, requestID: cfg.Server.RequestID, fair: cfg.Server.Fairness.Key != ""}
	if cfg.Server.Via {
		c.via = via
	}
	return c
}

// Host returns the Host field of requests to the SSP's first endpoint.
func (p *Part) Host() string { return p.Config.Parsed.All[0].Authority }

// CertificateExpiry returns when the client certificate for the SSP expires. It returns zero if there is none.
func (p *Part) CertificateExpiry() time.Time { return p.dialer.dial.CertificateExpiry() }

// FailedLookups returns the hosts of the SSP's endpoints whose last DNS look-up failed.
func (p *Part) FailedLookups() []dial.FailedLookup {
	return p.dialer.dial.FailedLookups()
}

// AddressChanges returns the last change of the addresses of each host of the SSP's endpoints.
func (p *Part) AddressChanges() []dial.AddressChange { return p.dialer.dial.AddressChanges() }
