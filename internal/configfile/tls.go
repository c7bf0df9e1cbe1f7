package configfile

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

// TLSFiles names the files of one side of TLS, all in PEM. "" means none.
type TLSFiles struct {
	Cert string // the certificate and its intermediate certificates
	Key  string // set if and only if Cert is
	CA   string // authorities of the other side's certificates
}

// Material is the content of TLSFiles. It never changes.
type Material struct {
	Certificate *tls.Certificate // nil = none
	Authorities *x509.CertPool   // nil = none
	// Digest identifies the content of all files, AuthoritiesDigest the content of CA.
	Digest, AuthoritiesDigest [sha256.Size]byte
}

// Load reads the files. The error joins an *Error for each file that is not valid.
func (f TLSFiles) Load() (*Material, error) {
	m := new(Material)
	var errs []error
	fail := func(key, file, rule string) { errs = append(errs, &Error{Key: key, File: file, Rule: rule}) }
	digest := sha256.New()
	read := func(key, file string) []byte {
		if file == "" {
			return nil
		}
		data, err := Read(file, maxBytes)
		if e := new(Error); errors.As(err, &e) {
			fail(key, file, e.Rule)
		} else if len(data) == 0 {
			fail(key, file, "must not be empty")
		}
		sum := sha256.Sum256(data)
		digest.Write(sum[:])
		return data
	}
	cert, key, ca := read("cert_file", f.Cert), read("key_file", f.Key), read("ca_file", f.CA)
	digest.Sum(m.Digest[:0])
	if len(cert) > 0 && len(key) > 0 {
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			fail("cert_file", f.Cert, "does not go with key_file "+f.Key+": "+err.Error())
		}
		m.Certificate = &pair
	}
	if len(ca) > 0 {
		m.AuthoritiesDigest = sha256.Sum256(ca)
		var rule string
		m.Authorities, rule = authorities(ca)
		if rule != "" {
			fail("ca_file", f.CA, rule)
		}
	}
	return m, errors.Join(errs...)
}

// authorities reads certificates, or returns the rule that they break. Each PEM block must be a
// valid certificate. If a block were skipped, the missing authority would show only when the other
// side uses it.
func authorities(data []byte) (pool *x509.CertPool, rule string) {
	pool = x509.NewCertPool()
	for n := 1; ; n++ {
		var block *pem.Block
		block, data = pem.Decode(data)
		if block == nil {
			if n == 1 {
				return nil, "must hold a certificate in PEM"
			}
			return pool, ""
		}
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Sprintf("must hold certificates only, but block %d is %q", n, block.Type)
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Sprintf("must hold valid certificates, but number %d is not: %v", n, err)
		}
		pool.AddCert(cert)
	}
}
