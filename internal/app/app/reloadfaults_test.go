package app

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"

	"adbuffer/internal/setup/config"
	"adbuffer/internal/setup/reload"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

func TestAChangeThatNeedsARestartChangesNothing(t *testing.T) {
	a := sim(t, sspsim.Options{})
	s := setup{ssps: []string{at("a", a)}, routes: []string{to("x", "a")}}
	v := run(t, s)
	hash := v.app.versions.Current().Hash()
	s.ssps[0] = at("a", a, "max_in_flight: 7")
	s.log = "format: console"
	s.server = "max_header_bytes: 9000"
	_, err := v.app.Reload(t.Context(), s.load(t), new(reload.Trial))
	var faults config.Errors
	testsupport.MustTrue(t, errors.As(err, &faults) && len(faults) == 2, "the reload says %v, want two errors", err)
	for i, want := range []string{"server.max_header_bytes", "log.format"} {
		testsupport.True(t, faults[i].Path == want && strings.Contains(faults[i].Rule, "restart"), "error %d is %v, want it to name %s and how to mend it", i, faults[i], want)
	}
	testsupport.True(t, v.app.versions.Current().Hash() == hash && v.app.versions.Current().Parts[0].SSP.MaxInFlight() == 0, "a part of it was applied")
	v.wantMetric("config_last_reload_successful", "0")
	v.wantMetric(`config_info{hash="`+hash+`"}`, "1")
	l := v.logged(zap.ErrorLevel)
	testsupport.True(t, strings.Contains(l, "log.format") && strings.Contains(l, "server.max_header_bytes"), "the log says %s", l)
	s.log, s.server = "", ""
	v.reload(s)
	v.wantMetric("config_last_reload_successful", "1")
	v.wantMetric(`concurrency_limit{ssp="a"}`, "7")
}

// The file is good when the configuration is checked, and is spoilt afterwards.
func TestAReloadWithABrokenCAFileChangesNothing(t *testing.T) {
	a := sim(t, sspsim.Options{Protocol: sspsim.TLSAuto})
	b := sim(t, sspsim.Options{})
	ca := filepath.Join(t.TempDir(), "ca.pem")
	write(t, ca, a.CA().PEM())
	s := setup{ssps: []string{at("b", b), at("a", a, "tls: {ca_file: \""+ca+"\"}")}, routes: []string{to("x", "a"), to("y", "b")}}
	v := run(t, s)
	v.want("/x", "a")
	was := v.app.versions.Current()
	s.ssps = append(s.ssps, at("c", b)) // the change list has it before the error is found
	s.ssps[0] = at("b", b, "max_in_flight: 7")
	cfg := s.load(t)
	write(t, ca, []byte("-----BEGIN CERTIFICATE-----\nbm90IG9uZQ==\n-----END CERTIFICATE-----\n"))
	_, err := v.app.Reload(t.Context(), cfg, new(reload.Trial))
	var faults config.Errors
	if !errors.As(err, &faults) || len(faults) != 1 || faults[0].Path != "ssps[1]" || !strings.Contains(faults[0].Rule, "tls.ca_file") {
		t.Fatalf("the reload says %v, want an error of the file", err)
	}
	testsupport.True(t, v.app.versions.Current() == was && was.Parts[0].SSP.MaxInFlight() == 0, "a part of it was applied")
	v.wantMetric("config_last_reload_successful", "0")
	v.want("/x", "a")
	write(t, ca, a.CA().PEM())
	v.reload(s)
	v.wantMetric("config_last_reload_successful", "1")
	testsupport.True(t, v.app.versions.Current().Parts[1].SSP == was.Parts[1].SSP, "the SSP is another, but its file has the same content as before")
}

func TestAnotherContentOfATLSFileGetsANewPool(t *testing.T) {
	a := sim(t, sspsim.Options{Protocol: sspsim.TLSAuto, RequireClientCert: true})
	dir := t.TempDir()
	ca, cert, key := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	issue := func() {
		pair, err := a.CA().ClientCert("adbuffer")
		testsupport.NoError(t, err)
		testsupport.NoError(t, sspsim.WriteKeyPair(pair, cert, key))
	}
	issue()
	write(t, ca, a.CA().PEM())
	s := setup{
		ssps:   []string{at("a", a, "tls: {ca_file: \""+ca+"\", cert_file: \""+cert+"\", key_file: \""+key+"\"}")},
		routes: []string{to("x", "a")},
	}
	v := run(t, s)
	v.want("/x", "a")
	pool := v.pool()
	write(t, ca, a.CA().PEM()) // the same content
	v.reload(s)
	testsupport.Equal(t, v.pool(), pool, "the pool is another, but the file has the same content: %v")
	for _, c := range []struct {
		change func()
		paths  string
	}{
		{func() { write(t, ca, append(a.CA().PEM(), '\n')) }, "ssps[a].tls.ca_file"},
		{issue, "ssps[a].tls.cert_file ssps[a].tls.key_file"},
	} {
		c.change()
		var paths []string
		for _, ch := range v.reload(s).Changes {
			paths = append(paths, ch.Path)
			testsupport.True(t, ch.Effect == config.NewPool, "%v, want a new pool", ch)
		}
		testsupport.Equal(t, strings.Join(paths, " "), c.paths, "the changes are %s")
		testsupport.True(t, v.pool() != pool, "the pool is the same")
		pool = v.pool()
		v.want("/x", "a")
	}
	v.drained()
	v.wantMetric(`ssp_requests_total{outcome="fill",ssp="a"}`, "3")
}

func write(t *testing.T, file string, data []byte) {
	t.Helper()
	testsupport.NoError(t, os.WriteFile(file, data, 0o600))
}
