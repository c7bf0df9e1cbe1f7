package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"go.uber.org/zap"

	"adbuffer/internal/app"
	"adbuffer/internal/config"
)

// service counts what it is asked to take into force.
type service struct {
	reloads, failures int
	refuse            error
}

func (s *service) Reload(cfg *config.Config) (*app.Reloaded, error) {
	s.reloads++
	if s.refuse != nil {
		return nil, s.refuse
	}
	return &app.Reloaded{Hash: cfg.Hash()}, nil
}

func (s *service) ReloadFailed(error) { s.failures++ }

func newTestReloader(t *testing.T, text string) (*reloader, *service) {
	t.Helper()
	s := new(service)
	r := newReloader(writeConfig(t, text))
	cfg, _, err := config.Load(r.path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.start(s, cfg, zap.NewNop())
	return r, s
}

func TestAllWhoAskWhileAReloadIsUnderWayAreServedByOneMore(t *testing.T) {
	t.Parallel()
	r, s := newTestReloader(t, single("http://127.0.0.1:1/bid"))
	r.turn.Lock() // one is under way
	var wg sync.WaitGroup
	reports := make(chan *reloadReport, 50)
	for range cap(reports) {
		wg.Go(func() { reports <- r.reload(byAdmin) })
	}
	eventually(t, "all have asked", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.next != nil && len(r.next.by) == cap(reports)
	})
	r.turn.Unlock()
	wg.Wait()
	first := <-reports
	for range cap(reports) - 1 {
		if got := <-reports; got != first {
			t.Error("two reports of one reload")
		}
	}
	if s.reloads != 1 || first.Result != reloadUnchanged {
		t.Errorf("%d reloads, the first of which was %q", s.reloads, first.Result)
	}
	r.reload(bySignal)
	if s.reloads != 2 {
		t.Errorf("%d reloads, want 2", s.reloads)
	}
}

func TestOnlyAnotherContentMakesTheWatcherReload(t *testing.T) {
	t.Parallel()
	r, s := newTestReloader(t, single("http://127.0.0.1:1/bid"))
	r.look()
	if s.reloads != 0 {
		t.Error("it reloaded what had not changed")
	}
	write := func(text string) {
		if err := os.WriteFile(r.path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(single("http://127.0.0.1:2/bid"))
	r.look()
	r.look()
	if s.reloads != 1 {
		t.Errorf("%d reloads of one change", s.reloads)
	}
	s.refuse = errors.New("no")
	write(single("http://127.0.0.1:3/bid"))
	r.look()
	r.look()
	if s.reloads != 2 {
		t.Errorf("%d reloads: what was refused whole was tried again, although nothing changed", s.reloads)
	}
}

func TestAFaultIsToldOnceHoweverOftenTheFileIsLookedAt(t *testing.T) {
	t.Parallel()
	r, s := newTestReloader(t, single("http://127.0.0.1:1/bid"))
	write := func(text string) {
		if err := os.WriteFile(r.path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("ssps: []")
	for range 3 {
		r.look()
	}
	if s.failures != 1 || s.reloads != 0 {
		t.Errorf("told %d times, want 1; %d reloads", s.failures, s.reloads)
	}
	if rep := r.reload(bySignal); s.failures != 2 || rep.Result != reloadRefused || len(rep.Faults) == 0 {
		t.Errorf("told %d times, want 2, since somebody asked: %+v", s.failures, rep)
	}
	write("ssps: [] # another")
	r.look()
	write("routes: []")
	r.look()
	if s.failures != 3 {
		t.Errorf("told %d times, want 3: the last fault is another", s.failures)
	}
	write(single("http://127.0.0.1:1/bid"))
	r.look()
	if s.reloads != 1 || r.unread != "" {
		t.Errorf("%d reloads of the file that is good again, want 1", s.reloads)
	}
}

func TestEveryFileThatAConfigurationNamesIsWatched(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	cfg := &config.Config{SSPs: make([]config.SSP, 2)}
	cfg.Admin.TokenFile, cfg.Admin.ClientCAFile = file("token"), file("admin-ca")
	cfg.Server.TLS.CertFile, cfg.Server.TLS.KeyFile = file("cert"), file("key")
	cfg.SSPs[0].TLS.CAFile, cfg.SSPs[1].TLS.CAFile = file("ca"), file("ca")
	cfg.SSPs[1].TLS.CertFile, cfg.SSPs[1].TLS.KeyFile = file("ssp-cert"), file("ssp-key")
	want := []string{file("admin-ca"), file("ca"), file("cert"), file("key"), file("ssp-cert"), file("ssp-key"), file("token")}
	if got := filesOf(cfg); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
