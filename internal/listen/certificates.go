package listen

import (
	"context"
	"crypto/tls"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"adbuffer/internal/configfile"
)

// Files are a listener's TLS files.
type Files struct {
	// Name is the listener's name in the metrics' label: "server" or "admin".
	Name string
	// TLSFiles.CA holds the authorities of clients' certificates; "" asks for none.
	configfile.TLSFiles
	// ClientAuth says how clients' certificates are asked for if CA is set.
	ClientAuth tls.ClientAuthType
}

// Certificates holds a listener's certificates, as the files had them when they were
// last valid. Watch reloads them when the files change.
type Certificates struct {
	log     *zap.Logger
	files   Files
	keeper  *configfile.Keeper
	current atomic.Pointer[loaded]
}

// loaded is one version of the certificates. It never changes.
type loaded struct {
	config *tls.Config // of handshakes
	expiry time.Time   // of the certificate
	at     time.Time
}

// LoadCertificates reads the files, all of which must be valid.
func LoadCertificates(files Files, log *zap.Logger) (*Certificates, error) {
	keeper, err := configfile.Keep(files.TLSFiles)
	if err != nil {
		return nil, err
	}
	c := &Certificates{log: log, files: files, keeper: keeper}
	c.use(keeper.Current())
	return c, nil
}

// Config returns a server's configuration that offers these protocols by ALPN. Each
// handshake uses the certificates in use at that moment. The oldest TLS version is 1.2.
func (c *Certificates) Config(nextProtos ...string) *tls.Config {
	type offered struct{ from, config *tls.Config }
	var last atomic.Pointer[offered]
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: nextProtos,
		// The keys of session tickets belong to this config, so clients resume across
		// reloads. crypto/tls checks ClientCAs again when they do.
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			now := c.current.Load().config
			o := last.Load()
			if o == nil || o.from != now {
				o = &offered{now, now.Clone()}
				o.config.NextProtos = nextProtos
				last.Store(o)
			}
			return o.config, nil
		},
	}
}

// Reload reads the files now. If they are not valid, the certificates in use stay.
// The error names file and reason; it has been logged.
func (c *Certificates) Reload() error {
	changed, err := c.keeper.Reload()
	c.noted(changed, err)
	return err
}

// Watch reloads the files when they change, until ctx ends.
func (c *Certificates) Watch(ctx context.Context) { c.keeper.Watch(ctx, c.noted) }

// noted uses the certificates that were loaded, and logs it.
func (c *Certificates) noted(changed bool, err error) {
	switch {
	case err != nil:
		c.log.Error("the certificates stay as they are: their files are not valid", zap.String("listener", c.files.Name), zap.Error(err))
	case changed:
		c.use(c.keeper.Current())
		c.log.Info("certificates reloaded", zap.String("listener", c.files.Name), zap.String("cert_file", c.files.Cert), zap.Time("expires", c.current.Load().expiry))
	}
}

func (c *Certificates) use(m *configfile.Material) {
	l := &loaded{
		config: &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*m.Certificate}},
		expiry: m.Certificate.Leaf.NotAfter,
		at:     time.Now(),
	}
	if m.Authorities != nil {
		l.config.ClientCAs, l.config.ClientAuth = m.Authorities, c.files.ClientAuth
	}
	c.current.Store(l)
	if l.at.After(l.expiry) {
		c.log.Warn("the certificate has expired", zap.String("listener", c.files.Name), zap.String("cert_file", c.files.Cert), zap.Time("expired", l.expiry))
	}
}
