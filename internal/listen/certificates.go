package listen

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// Files are where a listener's certificates lie, all in PEM.
type Files struct {
	// Name is the listener's, as the metrics' label has it: "server" or "admin".
	Name     string
	CertFile string // the certificate, and those between it and its authority
	KeyFile  string
	// ClientCAFile holds the authorities of clients' certificates; "" asks for none.
	ClientCAFile string
	// ClientAuth says what is asked for where ClientCAFile is set.
	ClientAuth tls.ClientAuthType
}

// Certificates serves a listener's certificates, always those that the files
// held last and that were good: broken files change nothing but a metric and the
// log. Run Watch for changes to be seen without Reload.
type Certificates struct {
	log     *zap.Logger
	files   Files
	current atomic.Pointer[tls.Config] // what handshakes use; never changed once stored

	mu     sync.Mutex        // guards the fields below; held while files are read
	loaded [sha256.Size]byte // digest of what current was made of
	good   bool              // the files as last read are those in use
	expiry time.Time         // of the certificate in use
	at     time.Time         // when current was made
}

// LoadCertificates reads the files, all of which must be good.
func LoadCertificates(files Files, log *zap.Logger) (*Certificates, error) {
	c := &Certificates{log: log, files: files}
	pem, err := files.read()
	if err != nil {
		return nil, err
	}
	if err := c.useLocked(pem); err != nil { // nobody else has it yet
		return nil, err
	}
	return c, nil
}

// Config returns a configuration for servers that offers these protocols by
// ALPN. Each handshake uses the certificates of its moment. TLS 1.2 is the least.
func (c *Certificates) Config(nextProtos ...string) *tls.Config {
	type offered struct{ from, config *tls.Config }
	var last atomic.Pointer[offered]
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: nextProtos,
		// The keys of session tickets are this config's own, so clients resume
		// across reloads; crypto/tls looks at ClientCAs again when they do.
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			now := c.current.Load()
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

// Reload reads the files now. Where they are broken or do not go together, what
// is in use stays, and the error, which has been logged, names file and reason.
func (c *Certificates) Reload() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reloadLocked()
}

func (c *Certificates) reloadLocked() error {
	files := c.files
	pem, err := files.read()
	if err == nil && pem.digest() == c.loaded {
		c.good = true
		return nil
	}
	if err == nil {
		err = c.useLocked(pem)
	}
	if err != nil {
		c.good = false
		c.log.Error("the certificates stay as they are: their files are not good", zap.String("listener", files.Name), zap.Error(err))
		return err
	}
	c.log.Info("certificates reloaded", zap.String("listener", files.Name), zap.String("cert_file", files.CertFile), zap.Time("expires", c.expiry))
	return nil
}

// useLocked makes what was read what handshakes use.
func (c *Certificates) useLocked(pem *pems) error {
	config, expiry, err := c.files.parse(pem)
	if err != nil {
		return err
	}
	c.current.Store(config)
	c.loaded, c.expiry, c.at, c.good = pem.digest(), expiry, time.Now(), true
	if now := time.Now(); now.After(expiry) {
		c.log.Warn("the certificate has expired", zap.String("listener", c.files.Name), zap.String("cert_file", c.files.CertFile), zap.Time("expired", expiry))
	}
	return nil
}

// watchEvery is how often files are looked at. A change is loaded at the second
// look that finds the same, so that a certificate and its key may be written one
// after the other.
const watchEvery = time.Second

// Watch reloads the files when they change, until ctx ends: when their time,
// size or identity does, also behind symbolic links that are swapped. It asks
// for no events, which network file systems and single-file mounts do not send.
func (c *Certificates) Watch(ctx context.Context) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	var done, before look // the first look finds a change, since what was read may be older
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		c.mu.Lock()
		now := c.files.look()
		if now != done && now == before {
			done = now
			c.reloadLocked() //nolint:errcheck // it has been logged
		}
		c.mu.Unlock()
		before = now
	}
}

// pems is what the files hold.
type pems struct{ cert, key, clientCA []byte }

func (p *pems) digest() (sum [sha256.Size]byte) {
	h := sha256.New()
	for _, b := range [][]byte{p.cert, p.key, p.clientCA} {
		one := sha256.Sum256(b)
		h.Write(one[:])
	}
	h.Sum(sum[:0])
	return sum
}

func (f *Files) read() (*pems, error) {
	var p pems
	for _, file := range []struct {
		name string
		into *[]byte
	}{{f.CertFile, &p.cert}, {f.KeyFile, &p.key}, {f.ClientCAFile, &p.clientCA}} {
		if file.name == "" {
			continue
		}
		b, err := readSmall(file.name)
		if err != nil {
			return nil, err
		}
		*file.into = b
	}
	return &p, nil
}

func (f *Files) parse(p *pems) (*tls.Config, time.Time, error) {
	cert, err := tls.X509KeyPair(p.cert, p.key)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("%s with %s: %w", f.CertFile, f.KeyFile, err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}}
	if f.ClientCAFile != "" {
		config.ClientCAs, config.ClientAuth = x509.NewCertPool(), f.ClientAuth
		if !config.ClientCAs.AppendCertsFromPEM(p.clientCA) {
			return nil, time.Time{}, fmt.Errorf("%s: holds no certificate in PEM", f.ClientCAFile)
		}
	}
	return config, cert.Leaf.NotAfter, nil
}

// maxPEMBytes bounds a file of certificates.
const maxPEMBytes = 1 << 20

// readSmall reads a regular file; a pipe could hold us for good.
func readSmall(name string) ([]byte, error) {
	info, err := os.Stat(name)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s: is no regular file", name)
	case info.Size() > maxPEMBytes:
		return nil, fmt.Errorf("%s: is larger than %d bytes", name, maxPEMBytes)
	case info.Size() == 0:
		return nil, fmt.Errorf("%s: is empty", name)
	}
	return os.ReadFile(name)
}

// look is what the file system says about the files; comparable.
type look [3]struct {
	id   fileID
	size int64
	at   time.Time
	gone bool
}

func (f *Files) look() (l look) {
	for i, name := range []string{f.CertFile, f.KeyFile, f.ClientCAFile} {
		info, err := os.Stat(name)
		if err != nil {
			l[i].gone = true
			continue
		}
		l[i].id, l[i].size, l[i].at = idOf(info), info.Size(), info.ModTime()
	}
	return l
}
