package configfile

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
)

// TLSFiles names the files of one side of TLS, all in PEM. "" means none.
type TLSFiles struct {
	Cert string // the certificate, followed by the intermediate certificates
	Key  string // the key of Cert; set if and only if Cert is set
	CA   string // the authorities that the peer's certificate must come from
}

// Material is the content of TLSFiles. It never changes.
type Material struct {
	Certificate *tls.Certificate // nil = none
	Authorities *x509.CertPool   // nil = none
	// Digest identifies the content of all files: Keeper compares it to find out whether the content has changed.
	Digest [sha256.Size]byte
	// AuthoritiesDigest identifies the content of CA; zero without CA. The keys of session tickets depend on it, so that a
	// ticket does not outlive the authorities that accepted its client.
	AuthoritiesDigest [sha256.Size]byte
}

// Load reads the files. The error joins an *Error for each invalid file; after an error, the Material is incomplete.
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
		if rule := pemRule(data); rule != "" {
			fail(key, file, rule)
			return nil
		}
		return data
	}
	cert, key, ca := read("cert_file", f.Cert), read("key_file", f.Key), read("ca_file", f.CA)
	digest.Sum(m.Digest[:0])
	if len(cert) > 0 && len(key) > 0 {
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			fail("cert_file", f.Cert, "cannot be used with key_file "+f.Key+": "+err.Error())
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

// authorities returns the certificates of data, or the rule that data breaks. Each PEM block must be a valid
// certificate. If a block were skipped, the missing authority would be noticed only when a peer presents a
// certificate that the authority has signed.
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

// pemRule returns the rule that data breaks, or "". The rules are that pem.Decode skips no block, and that no key is
// encrypted. A skipped block would mean that a certificate of the chain, or an authority, is missing.
func pemRule(data []byte) string {
	switch {
	case bytes.HasPrefix(data, []byte("\xef\xbb\xbf")):
		return "must not begin with a byte order mark (BOM): PEM is ASCII"
	case bytes.HasPrefix(data, []byte("\xff\xfe")), bytes.HasPrefix(data, []byte("\xfe\xff")):
		return "must not be UTF-16: PEM is ASCII"
	}
	// Ten dashes are an END line that is joined to the next BEGIN line, as in a concatenation of files without a final
	// line end.
	if at := bytes.Index(data, []byte("----------BEGIN ")); at >= 0 {
		return fmt.Sprintf("must have a line end before -----BEGIN, in line %d", lineOf(data, at))
	}
	begin := []byte("-----BEGIN ")
	for at := 0; ; {
		next := bytes.Index(data[at:], begin)
		if next < 0 {
			return ""
		}
		at += next
		if start := bytes.LastIndexByte(data[:at], '\n') + 1; len(bytes.TrimSpace(data[start:at])) > 0 { // text before BEGIN on its line: not a PEM block
			at += len(begin)
			continue
		}
		block, rest := pem.Decode(data[at:])
		end := len(data) - len(rest)
		switch {
		case block == nil, bytes.Count(data[at:end], begin) != 1:
			return fmt.Sprintf("must hold valid PEM, but the block that begins in line %d is not", lineOf(data, at))
		case block.Type == "ENCRYPTED PRIVATE KEY", strings.Contains(block.Headers["Proc-Type"], "ENCRYPTED"):
			return "must not hold an encrypted key; openssl pkey -in FILE -out NEW writes it without its password"
		}
		at = end
	}
}

// lineOf returns the number of the line that holds data[at].
func lineOf(data []byte, at int) int { return 1 + bytes.Count(data[:at], []byte("\n")) }
