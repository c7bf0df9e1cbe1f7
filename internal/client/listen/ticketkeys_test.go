package listen

import (
	"bytes"
	"crypto/tls"
	"net"
	"path/filepath"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/handshake"
)

// firstSession is a client's cache that keeps the first session it gets.
type firstSession struct{ state *tls.ClientSessionState }

func (f *firstSession) Get(string) (*tls.ClientSessionState, bool) { return f.state, f.state != nil }

func (f *firstSession) Put(_ string, state *tls.ClientSessionState) {
	if f.state == nil {
		f.state = state
	}
}

// resumes does a handshake over a pipe, and reports whether it resumed the client's session.
func resumes(t *testing.T, server, client *tls.Config) bool {
	t.Helper()
	x, y := net.Pipe()
	served := make(chan error, 1)
	s, k := tls.Server(x, server), tls.Client(y, client)
	go func() {
		_, err := s.Write([]byte("hello"))
		served <- err
	}()
	var b [5]byte
	_, err := k.Read(b[:])
	must(t, err)
	must(t, <-served)
	return s.ConnectionState().DidResume
}

func TestATicketIsGoodUntilItsKeyIsTheOldestOfFour(t *testing.T) {
	c := loadCerts(t, newAuthority(t), nil)
	now := time.Now()
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		testsupport.Bubble(t, func(t *testing.T) {
			c, err := LoadCertificates(c.files, c.log)
			must(t, err)
			config := c.Config()
			client := &tls.Config{InsecureSkipVerify: true, MaxVersion: version, Time: func() time.Time { return now }, ClientSessionCache: new(firstSession)}
			time.Sleep(ticketKeyRotation - time.Minute)
			testsupport.True(t, !resumes(t, config, client), "resumed without a session")
			time.Sleep((maxTicketKeys - 1) * ticketKeyRotation)
			testsupport.True(t, resumes(t, config, client), "%s: the ticket is refused while its key is valid", tls.VersionName(version))
			time.Sleep(2 * time.Minute)
			testsupport.True(t, !resumes(t, config, client), "%s: the ticket of a dropped key is accepted", tls.VersionName(version))
			for range 10 {
				time.Sleep(ticketKeyRotation)
				resumes(t, config, client)
			}
			keys := c.handedKeys()
			testsupport.Equal(t, len(keys), maxTicketKeys, "%d keys")
			time.Sleep(1000 * time.Hour) // no client connects
			keys = c.handedKeys()
			testsupport.True(t, len(keys) == 1 && time.Since(keys[0].Made) <= 0, "keys that are too old are handed over: %d", len(keys))
		})
	}
}

func TestOnlyValidTicketKeysAreTakenOver(t *testing.T) {
	key := func(n int) ticketKey { return ticketKey{time.Now(), bytes.Repeat([]byte{7}, n)} }
	good := key(ticketKeyBytes)
	future := good
	future.Made = future.Made.Add(1000 * time.Hour)
	old := good
	old.Made = old.Made.Add(-maxTicketKeys * ticketKeyRotation)
	for _, row := range []struct {
		name   string
		handed []ticketKey
		used   bool
	}{
		{"one", []ticketKey{good}, true},
		{"of the future", []ticketKey{future}, true},
		{"none", nil, false},
		{"too many", []ticketKey{good, good, good, good, good}, false},
		{"short", []ticketKey{good, key(31)}, false},
		{"long", []ticketKey{key(33)}, false},
		{"too old", []ticketKey{old}, false},
	} {
		var keys TicketKeys
		keys.adopt(row.handed)
		now, until := keys.current()
		used := bytes.Equal(now[0].Key, good.Key)
		testsupport.True(t, used == row.used && len(now) == 1, "%s: used: %v, %d keys", row.name, used, len(now))
		left := time.Until(until)
		testsupport.True(t, left > 0 && left <= ticketKeyRotation, "%s: used for %v", row.name, left)
	}
}

// The process that took over requires more than the previous process. A ticket of the previous
// process does not help a client to avoid that.
func TestATicketOfTheProcessBeforeDoesNotReplaceTheClientsCertificate(t *testing.T) {
	a, b := newAuthority(t), newAuthority(t)
	asks := func(by *authority) func(*Files) {
		return func(f *Files) {
			f.CA, f.ClientAuth = filepath.Join(filepath.Dir(f.Cert), "clients.pem"), tls.RequireAndVerifyClientCert
			replace(t, f.CA, string(by.PEM()))
		}
	}
	mine, err := a.ClientCert("app")
	must(t, err)
	for _, row := range []struct {
		name          string
		before, after func(*Files)
		certificate   bool
		ok, resumes   bool
	}{
		{"from none to a", nil, asks(a), false, false, false},
		{"from none to a, with a's certificate", nil, asks(a), true, true, false},
		{"from a to a", asks(a), asks(a), true, true, true},
		{"from a to b", asks(a), asks(b), true, false, false},
		{"from a to none", asks(a), nil, true, true, false},
	} {
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			before, after := loadCerts(t, a, row.before), loadCerts(t, a, row.after)
			client := &tls.Config{RootCAs: a.Pool(), ServerName: "localhost", ClientSessionCache: new(firstSession), MaxVersion: version}
			if row.certificate {
				client.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &mine, nil }
			}
			_, _, err := before.handshake(before.Config(), client)
			must(t, err)
			after.adoptKeys(before.handedKeys())
			s, _, err := after.handshake(after.Config(), client)
			testsupport.True(t, (err == nil) == row.ok && s.DidResume == row.resumes, "%s, %s: %v, resumed: %v", row.name, tls.VersionName(version), err, s.DidResume)
		}
	}
}

// A ticket repeats the proof of a full handshake. When the required proof changes, the ticket is
// worthless, even if the client would be accepted.
func TestTicketsEndWithThePolicyAndTheAuthorities(t *testing.T) {
	a := newAuthority(t)
	c := loadCerts(t, a, asksClients(tls.VerifyClientCertIfGiven))
	config := c.Config()
	client := &tls.Config{RootCAs: a.Pool(), ServerName: "localhost", ClientSessionCache: new(firstSession)}
	resumes(t, config, client)
	testsupport.True(t, resumes(t, config, client), "not resumed")
	c.SetPolicy(handshake.NewPolicy("1.3", handshake.GroupNames()))
	testsupport.True(t, !resumes(t, config, client), "resumed after another min_version")
	c.SetPolicy(handshake.NewPolicy("1.2", []string{"x25519"}))
	testsupport.True(t, !resumes(t, config, client), "resumed after other groups")
	c.SetPolicy(handshake.Policy{})
	testsupport.True(t, resumes(t, config, client), "not resumed although nothing changed")
	replace(t, c.files.CA, string(a.PEM())+string(newAuthority(t).PEM()))
	must(t, c.Reload())
	testsupport.True(t, !resumes(t, config, client), "resumed after another authority was added")
}
