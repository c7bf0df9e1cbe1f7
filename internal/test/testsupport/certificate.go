package testsupport

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"testing"
	"time"
)

// Certificate returns a certificate for names, which may be IP addresses, with a new key. It is its
// own authority, and valid for 30 days, for servers and clients. It panics if it fails, so that it
// can be made once for a package.
func Certificate(names ...string) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	return CertificateUntil(time.Now().Add(30*24*time.Hour), key, names...)
}

// CertificateUntil is Certificate with this key, valid up to end.
func CertificateUntil(end time.Time, key crypto.Signer, names ...string) tls.Certificate {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-30 * 24 * time.Hour), NotAfter: end, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for i, name := range names {
		if i == 0 {
			template.Subject = pkix.Name{CommonName: name}
		}
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		panic(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		panic(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// Roots returns a pool that holds only c.
func Roots(c tls.Certificate) *x509.CertPool {
	roots := x509.NewCertPool()
	roots.AddCert(c.Leaf)
	return roots
}

// PEM returns c and its key in PEM.
func PEM(t testing.TB, c tls.Certificate) (cert, key string) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	NoError(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

// WriteCertificate writes c and its key in PEM to files.
func WriteCertificate(t testing.TB, c tls.Certificate, certFile, keyFile string) {
	t.Helper()
	cert, key := PEM(t, c)
	for file, text := range map[string]string{certFile: cert, keyFile: key} {
		NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
}
