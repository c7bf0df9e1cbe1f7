package app

import (
	"crypto/sha256"
	"fmt"
	"os"
	"reflect"

	"adbuffer/internal/config"
	"adbuffer/internal/dial"
	"adbuffer/internal/reload"
	"adbuffer/internal/tracing"
)

// plan prepares the generation of cfg that is to follow was. The error is
// config.Faults, with all that could not be done; nothing has changed then.
func (a *App) plan(was *generation, cfg *config.Config) (*plan, error) {
	p := &plan{cfg: cfg, common: a.commonOf(cfg), tracer: was.tracer, ssps: make([]plannedSSP, 0, len(cfg.SSPs))}
	var faults config.Faults
	for i := range cfg.SSPs {
		s, err := a.planSSP(was.part(cfg.SSPs[i].Name), &cfg.SSPs[i])
		if err != nil {
			faults = append(faults, config.Fault{Path: fmt.Sprintf("ssps[%d]", i), Value: cfg.SSPs[i].Name, Rule: err.Error()})
			continue
		}
		p.ssps = append(p.ssps, s)
	}
	if cfg.Tracing != was.cfg.Tracing {
		var err error
		if p.tracer, err = newTracer(&cfg.Tracing); err != nil {
			faults = append(faults, config.Fault{Path: "tracing", Rule: err.Error()})
		}
	}
	if len(faults) > 0 {
		p.drop(was)
		return nil, faults
	}
	return p, nil
}

// drop gives up what was made for a generation that does not come.
func (p *plan) drop(was *generation) {
	for i := range p.ssps {
		if s := &p.ssps[i]; s.was == nil || s.dialer != s.was.dialer {
			s.dialer.dial.Close()
		}
	}
	if p.tracer != was.tracer {
		closeTracer(p.tracer) //nolint:errcheck // it has traced nothing
	}
}

// planSSP plans for an SSP, which is nil where it is new.
func (a *App) planSSP(was *part, c *config.SSP) (plannedSSP, error) {
	s := plannedSSP{cfg: c, was: was, fleet: a.fleet}
	var err error
	if s.endpoints, err = dial.ParseEndpoints(c.Endpoints); err != nil {
		return s, err
	}
	// Before they are read for use: what changes in between is seen next time.
	s.files = readTLSFiles(c, s.endpoints.Scheme)
	if was != nil && !was.needsPool(&s) {
		s.dialer = was.dialer
		return s, nil
	}
	s.dialer, err = newDialer(c, s.endpoints, a.peers.Logger())
	return s, err
}

// needsPool reports whether connections to the SSP as it is are not what they
// would be if they were opened as planned.
func (p *part) needsPool(s *plannedSSP) bool {
	return !reload.SameHosts(p.cfg.Endpoints, s.cfg.Endpoints) || p.cfg.Protocol != s.cfg.Protocol || p.cfg.TLS != s.cfg.TLS || p.files != s.files
}

func sameSettings(a, b *config.SSP) bool { return reflect.DeepEqual(a, b) }

// tlsFiles are digests of what ca_file, cert_file and key_file hold; of none, or
// of what cannot be read, it is zero.
type tlsFiles [3][sha256.Size]byte

func readTLSFiles(c *config.SSP, scheme string) (f tlsFiles) {
	if scheme != "https" {
		return f // not used
	}
	for i, name := range tlsFileNames(c) {
		if name == "" {
			continue
		}
		if data, err := os.ReadFile(name); err == nil {
			f[i] = sha256.Sum256(data)
		}
	}
	return f
}

func tlsFileNames(c *config.SSP) [3]string {
	return [3]string{c.TLS.CAFile, c.TLS.CertFile, c.TLS.KeyFile}
}

var tlsFileKeys = [3]string{"ca_file", "cert_file", "key_file"}

// contentChanges are the files of SSPs that keep their names and hold something
// else.
func (p *plan) contentChanges() []reload.Change {
	var changes []reload.Change
	for i := range p.ssps {
		s := &p.ssps[i]
		if s.was == nil {
			continue
		}
		was := tlsFileNames(s.was.cfg)
		for j, name := range tlsFileNames(s.cfg) {
			if name != "" && was[j] == name && s.was.files[j] != s.files[j] && s.endpoints.Scheme == "https" {
				changes = append(changes, reload.ContentChange("ssps["+s.cfg.Name+"].tls."+tlsFileKeys[j], name))
			}
		}
	}
	return changes
}

// newTracer returns nil where tracing is off.
func newTracer(c *config.Tracing) (*tracing.Tracer, error) {
	if c.Endpoint == "" {
		return nil, nil //nolint:nilnil // there is none, and nothing is wrong
	}
	return tracing.New(tracing.Options{Endpoint: c.Endpoint, Sample: c.Sample, Version: Version})
}
