package dial

import (
	"crypto/tls"
	"errors"
	"fmt"

	"adbuffer/internal/machine/configfile"
)

// clientCert is adbuffer's client certificate. It is read again when its files change. If a new version is invalid,
// clientCert warns once, and the previous version stays in use.
type clientCert struct {
	keeper *configfile.Keeper
	warn   func(error)
}

func newClientCert(certFile, keyFile string, warn func(error)) (*clientCert, error) {
	keeper, err := configfile.Keep(configfile.TLSFiles{Cert: certFile, Key: keyFile})
	if err != nil {
		return nil, withSetting(err)
	}
	return &clientCert{keeper: keeper, warn: warn}, nil
}

// load returns the current certificate, and a digest that identifies its version.
func (c *clientCert) load() (cert *tls.Certificate, version [32]byte) {
	if _, err := c.keeper.Check(); err != nil {
		c.warn(fmt.Errorf("%w; the previous client certificate stays in use", withSetting(err)))
	}
	m := c.keeper.Current()
	return m.Certificate, m.Digest
}

// withSetting adds the setting's name to an error about a file.
func withSetting(err error) error {
	if e := new(configfile.Error); errors.As(err, &e) {
		return fmt.Errorf("tls.%s: %w", e.Key, err)
	}
	return err
}
