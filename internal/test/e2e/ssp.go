package e2e

import (
	"fmt"
	"path/filepath"
	"regexp"
	"sync"
	"testing"

	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

var identity = regexp.MustCompile(`(?i)^(x[-_]forwarded|forwarded|x[-_]real[-_]ip|true[-_]client[-_]ip|x[-_]device)`)

// IdentityFields are the fields that give an SSP the client's identity.
func IdentityFields(r *sspsim.Request) (fields []string) {
	for _, f := range r.Header {
		if identity.MatchString(f.Name) {
			fields = append(fields, f.Name+": "+f.Value)
		}
	}
	return fields
}

// StartSSP starts a simulated SSP for the length of the test.
func StartSSP(t testing.TB, o sspsim.Options) *sspsim.SSP {
	t.Helper()
	s, err := sspsim.Start(o)
	testsupport.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// SSPWith starts an SSP with this behaviour. It keeps its last 100 requests.
func SSPWith(t testing.TB, b sspsim.Behaviour) *sspsim.SSP {
	t.Helper()
	return StartSSP(t, sspsim.Options{Behaviour: b, Record: 100})
}

// Healthy starts an SSP that responds to all requests at once. It keeps the last 100 requests.
func Healthy(t testing.TB) *sspsim.SSP { t.Helper(); return SSPWith(t, sspsim.Behaviour{}) }

// Failing starts an SSP with these injected faults.
func Failing(t testing.TB, f sspsim.Faults) *sspsim.SSP {
	t.Helper()
	return SSPWith(t, sspsim.Behaviour{Faults: f})
}

// LastRequest returns the last request that s received.
func LastRequest(t testing.TB, s *sspsim.SSP) *sspsim.Request {
	t.Helper()
	all := s.Requests()
	testsupport.MustTrue(t, len(all) > 0, "the SSP got no request")
	return all[len(all)-1]
}

// WantRequests checks how many requests s has received.
func WantRequests(t testing.TB, s *sspsim.SSP, n uint64) {
	t.Helper()
	testsupport.Equal(t, s.Counters().Requests, n, "the SSP got %d requests")
}

// Gated is an SSP that holds back its responses until Open.
type Gated struct {
	*sspsim.SSP
	Open func() // lets the SSP respond to all requests, later ones too
}

// StartGated starts a gated SSP; AwaitInFlight waits for requests to arrive.
func StartGated(t testing.TB, o sspsim.Options) *Gated {
	t.Helper()
	gate := make(chan struct{})
	o.OnRequest = func(*sspsim.Request) { <-gate }
	g := &Gated{StartSSP(t, o), sync.OnceFunc(func() { close(gate) })}
	t.Cleanup(g.Open) // before the SSP closes
	return g
}

// AwaitCounters waits until ok accepts the counters of s.
func AwaitCounters(t testing.TB, s *sspsim.SSP, what string, ok func(sspsim.Counters) bool) {
	t.Helper()
	testsupport.MustTrue(t, s.AwaitCounters(testsupport.Patience, ok), "not within %v: %s; the SSP's counters %+v", testsupport.Patience, what, s.Counters())
}

// AwaitInFlight waits until the SSP has n requests without a response.
func AwaitInFlight(t testing.TB, s *sspsim.SSP, n int64) {
	t.Helper()
	AwaitCounters(t, s, fmt.Sprintf("%d requests are in flight", n), func(c sspsim.Counters) bool { return c.InFlight == n })
}

// SetBehaviour gives s another behaviour.
func SetBehaviour(t testing.TB, s *sspsim.SSP, b sspsim.Behaviour) {
	t.Helper()
	testsupport.NoError(t, s.Set(b))
}

// CAFile writes the authority of s's certificate to a file.
func CAFile(t testing.TB, s *sspsim.SSP) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ca.pem")
	testsupport.NoError(t, s.CA().WriteFile(file))
	return file
}

// Trust is the setting of an SSP of the configuration that trusts the authority of s's certificate.
func Trust(t testing.TB, s *sspsim.SSP) string {
	t.Helper()
	return fmt.Sprintf("tls: {ca_file: %q}", CAFile(t, s))
}
