package sspsim

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"slices"
	"time"
)

// CA is a certificate authority in memory, with a P-256 key.
type CA struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// certLife is how long a new certificate is valid. Certificates are also valid for the hour before they are made.
const certLife = 30 * 24 * time.Hour

// NewCA makes an authority.
func NewCA() (*CA, error) {
	ca := new(CA)
	own, err := ca.issue(&x509.Certificate{Subject: pkix.Name{CommonName: "sspsim CA"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature})
	if err != nil {
		return nil, err
	}
	ca.cert, ca.key = own.Leaf, own.PrivateKey.(crypto.Signer)
	return ca, nil
}

// PEM returns the authority's certificate, or nil for a nil CA.
func (ca *CA) PEM() []byte {
	if ca == nil {
		return nil
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.cert.Raw})
}

// Pool returns a pool that holds the authority alone, or nil for a nil CA.
func (ca *CA) Pool() *x509.CertPool {
	if ca == nil {
		return nil
	}
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	return pool
}

// WriteFile writes the authority's certificate to path, as PEM.
func (ca *CA) WriteFile(path string) error { return os.WriteFile(path, ca.PEM(), 0o644) }

// ServerCert issues a certificate for hosts, which are names or IP addresses.
func (ca *CA) ServerCert(hosts ...string) (tls.Certificate, error) {
	template := &x509.Certificate{Subject: pkix.Name{CommonName: "sspsim"}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return ca.issue(template)
}

// ClientCert issues a client certificate with this common name.
func (ca *CA) ClientCert(name string) (tls.Certificate, error) {
	return ca.issue(&x509.Certificate{Subject: pkix.Name{CommonName: name}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
}

// issue makes a certificate with a new key. A CA without a certificate issues its own.
func (ca *CA) issue(template *x509.Certificate) (pair tls.Certificate, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair, err
	}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(certLife)
	issuer, signer := ca.cert, ca.key
	if issuer == nil {
		issuer, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer, key.Public(), signer)
	if err != nil {
		return pair, err
	}
	leaf, err := x509.ParseCertificate(der)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, err
}

// WriteKeyPair writes a certificate and its key as PEM; only the owner can read the key.
func WriteKeyPair(cert tls.Certificate, certFile, keyFile string) error {
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		return fmt.Errorf("key of %s: %w", certFile, err)
	}
	if err := os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]}), 0o644); err != nil {
		return err
	}
	return os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600)
}

// prepareTLS makes the authority, and the configuration for connections of this protocol.
func (s *SSP) prepareTLS() error {
	var err error
	s.ca, err = NewCA()
	if err != nil {
		return err
	}
	cert, err := s.ca.ServerCert("127.0.0.1", "::1", "localhost")
	if err != nil {
		return err
	}
	cert.Certificate = append(cert.Certificate, s.opts.ExtraCertificates...)
	s.tls = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}}
	switch s.opts.Protocol {
	case TLSAuto:
		s.tls.NextProtos = []string{"h2", "http/1.1"}
	case TLSHTTP2:
		s.tls.NextProtos = []string{"h2"}
		// crypto/tls accepts a client that offers only http/1.1, like a client without an offer.
		// With another name in the SSP's list, crypto/tls refuses it, with the alert.
		strict := s.tls.Clone()
		strict.NextProtos = []string{"none"}
		s.tls.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			if len(hello.SupportedProtos) > 0 && !slices.Contains(hello.SupportedProtos, "h2") {
				return strict, nil
			}
			return nil, nil
		}
	case TLSHTTP1:
		s.tls.NextProtos = []string{"http/1.1"}
	}
	if s.opts.RequireClientCert {
		s.tls.ClientAuth, s.tls.ClientCAs = tls.RequireAndVerifyClientCert, s.ca.Pool()
	}
	// Connections of HTTP1Only use clones of the configuration. They have its ticket key, so that a session of
	// one protocol can be resumed with the other.
	var key [32]byte
	rand.Read(key[:]) // it never fails
	s.tls.SetSessionTicketKeys([][32]byte{key})
	return nil
}

// CA returns the authority of the SSP's certificate and of the client certificates that it accepts,
// or nil without TLS.
func (s *SSP) CA() *CA { return s.ca }
