package listen

import (
	"context"
	"crypto/tls"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"adbuffer/internal/machine/configfile"
	"adbuffer/internal/wire/handshake"
)

// Files are a listener's TLS files.
type Files struct {
	// Name is the listener's name in the metrics' label: "server" or "admin".
	Name string
	// TLSFiles.CA names the authorities of clients' certificates; "" = clients are not asked for certificates.
	configfile.TLSFiles
	// ClientAuth is the policy for clients' certificates if CA is set.
	ClientAuth tls.ClientAuthType
	// Policy is the policy of handshakes until SetPolicy.
	Policy handshake.Policy
}

// Certificates holds a listener's certificates, from when the files were last valid, and the keys of its session
// tickets. Watch reloads the certificates when the files change.
type Certificates struct {
	log     *zap.Logger
	files   Files
	keeper  *configfile.Keeper
	tickets TicketKeys
	current atomic.Pointer[certificateVersion]

	mu     sync.Mutex // guards policy, held while current is replaced
	policy handshake.Policy
}

// certificateVersion is one version of the certificates, the policy and the ticket keys. It never changes.
type certificateVersion struct {
	material  *configfile.Material
	config    *tls.Config // of handshakes
	keysUntil time.Time   // the time of the next ticket key
}

func (l *certificateVersion) expiry() time.Time { return l.material.Certificate.Leaf.NotAfter }

// LoadCertificates reads the files. All of them must be valid.
func LoadCertificates(files Files, log *zap.Logger) (*Certificates, error) {
	keeper, err := configfile.Keep(files.TLSFiles)
	if err != nil {
		return nil, err
	}
	c := &Certificates{log: log, files: files, keeper: keeper, policy: files.Policy}
	c.renew()
	return c, nil
}

// Config returns a server's configuration that offers nextProtos by ALPN. Each handshake uses the certificates, the
// policy and the ticket keys that are current when it starts.
func (c *Certificates) Config(nextProtos ...string) *tls.Config {
	type offered struct{ from, config, withoutHTTP2 *tls.Config }
	var last atomic.Pointer[offered]
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: nextProtos,
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			l := c.current.Load()
			if !time.Now().Before(l.keysUntil) {
				l = c.renew()
			}
			o := last.Load()
			if o == nil || o.from != l.config {
				o = &offered{from: l.config, config: l.config.Clone()}
				o.config.NextProtos = nextProtos
				// Without this, crypto/tls starts with records of one packet each, and makes a system call for each
				// record: four for a response of 4 KB.
				o.config.DynamicRecordSizingDisabled = true
				o.withoutHTTP2 = o.config.Clone()
				o.withoutHTTP2.NextProtos = slices.DeleteFunc(slices.Clone(nextProtos), func(p string) bool { return p == "h2" })
				last.Store(o)
			}
			if !handshake.OfferAllowsHTTP2(hello) { // RFC 9113, section 9.2.2
				return handshake.VerifyClients(o.withoutHTTP2), nil
			}
			return handshake.VerifyClients(o.config), nil
		},
	}
}

// SetPolicy sets the policy of handshakes that start from now on.
func (c *Certificates) SetPolicy(p handshake.Policy) {
	c.mu.Lock()
	c.policy = p
	c.mu.Unlock()
	c.renew()
}

// Expiry returns when the certificate in use expires.
func (c *Certificates) Expiry() time.Time { return c.current.Load().expiry() }

// Reload reads the files now. If they are not valid, the current certificates stay in use. The error names the file
// and the reason, and has been logged.
func (c *Certificates) Reload() error {
	changed, err := c.keeper.Reload()
	c.use(changed, err)
	return err
}

// Watch reloads the files when they change, until ctx ends.
func (c *Certificates) Watch(ctx context.Context) { c.keeper.Watch(ctx, c.use) }

// use puts certificates that were loaded into use, and logs the result of the loading.
func (c *Certificates) use(changed bool, err error) {
	switch {
	case err != nil:
		c.log.Error("the certificates stay as they are: their files are not valid", zap.String("listener", c.files.Name), zap.Error(err))
	case changed:
		c.renew()
		c.log.Info("certificates reloaded", zap.String("listener", c.files.Name), zap.String("cert_file", c.files.Cert), zap.Time("expires", c.current.Load().expiry()))
	}
}

// renew makes a new current version from the keeper's certificates, the policy and the ticket keys.
func (c *Certificates) renew() *certificateVersion {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.current.Load()
	m := c.keeper.Current()
	keys, until := c.tickets.current()
	l := &certificateVersion{material: m, config: &tls.Config{Certificates: []tls.Certificate{*m.Certificate}}, keysUntil: until}
	c.policy.Apply(l.config)
	l.config.SetSessionTicketKeys(forTLS(keys, m, c.policy))
	if m.Authorities != nil {
		l.config.ClientCAs, l.config.ClientAuth = m.Authorities, c.files.ClientAuth
	}
	if (before == nil || before.material != m) && time.Now().After(l.expiry()) {
		c.log.Warn("the certificate has expired", zap.String("listener", c.files.Name), zap.String("cert_file", c.files.Cert), zap.Time("expired", l.expiry()))
	}
	c.current.Store(l)
	return l
}

// handedKeys returns the ticket keys to hand over to the next process; nil for a listener without TLS.
func (c *Certificates) handedKeys() []ticketKey {
	if c == nil {
		return nil
	}
	keys, _ := c.tickets.current()
	return keys
}

// adoptKeys uses the ticket keys of the previous process.
func (c *Certificates) adoptKeys(keys []ticketKey) {
	if c != nil {
		c.tickets.adopt(keys)
		c.renew()
	}
}
