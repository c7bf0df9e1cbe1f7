package config

import (
	"time"

	"adbuffer/internal/machine/configfile"
)

// CertificateSoon is how long before its expiry a certificate causes a warning. The alerts of
// deploy/prometheus use the same time.
const CertificateSoon = 14 * 24 * time.Hour

// certificate warns of a certificate that is not valid now or expires soon. peers names who would refuse
// the certificate. A file that cannot be read is an error of the configuration, not a warning.
func (w *warner) certificate(path, certFile, keyFile, peers string) {
	m, err := configfile.TLSFiles{Cert: certFile, Key: keyFile}.Load()
	if err != nil || m.Certificate == nil {
		return
	}
	leaf, now := m.Certificate.Leaf, time.Now()
	switch day := func(t time.Time) string { return t.UTC().Format(time.RFC3339) }; {
	case now.After(leaf.NotAfter):
		w.add(path, "the certificate in %s expired at %s; %s refuse it", certFile, day(leaf.NotAfter), peers)
	case now.Before(leaf.NotBefore):
		w.add(path, "the certificate in %s is not valid before %s; until then %s refuse it", certFile, day(leaf.NotBefore), peers)
	case leaf.NotAfter.Sub(now) < CertificateSoon:
		w.add(path, "the certificate in %s expires at %s; from then on %s refuse it", certFile, day(leaf.NotAfter), peers)
	}
}
