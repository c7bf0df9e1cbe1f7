package reload

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"adbuffer/internal/machine/configfile"
	"adbuffer/internal/setup/config"
	"adbuffer/internal/test/testsupport"
)

// counter counts the configurations that it receives.
type counter struct {
	reloads, failures int
	refuse            error
	during            func() // called within Reload; may be nil
}

func (c *counter) Reload(_ context.Context, cfg *config.Config, t *Trial) (*Report, error) {
	c.reloads++
	if t.MaxChange != nil {
		t.Result = *t.MaxChange
	}
	if c.during != nil {
		c.during()
	}
	if c.refuse != nil {
		return nil, c.refuse
	}
	return &Report{Result: unchanged, Hash: cfg.Hash()}, nil
}

func (c *counter) ReloadFailed(error) { c.failures++ }

func newTestFile(t *testing.T, text string) (*File, *counter) {
	t.Helper()
	s := new(counter)
	r := NewFile(filepath.Join(t.TempDir(), "adbuffer.yaml"))
	write(t, r, text)
	cfg, _, err := config.Load(r.path, nil)
	testsupport.NoError(t, err)
	r.content = configfile.Look([]string{r.path})
	r.Start(s, cfg, zap.NewNop())
	return r, s
}

func write(t *testing.T, f *File, text string) {
	t.Helper()
	testsupport.NoError(t, os.WriteFile(f.path, []byte(text), 0o600))
}

// to is a configuration of one SSP.
func to(endpoint string) string {
	return "ssps: [{name: openx, endpoints: [\"" + endpoint + "\"]}]\nroutes: [{name: default, match: {path: /fillbuffer}, ssps: [openx]}]\n"
}

func TestAllRequestsDuringAReloadShareTheNextOne(t *testing.T) {
	t.Parallel()
	r, s := newTestFile(t, to("http://127.0.0.1:1/bid"))
	r.turn.Lock() // a reload is in progress
	var wg sync.WaitGroup
	reports := make(chan *Report, 50)
	for range cap(reports) {
		wg.Go(func() { reports <- r.reload(byAdmin) })
	}
	asked := func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.next != nil && len(r.next.by) == cap(reports)
	}
	for !asked() {
		time.Sleep(time.Millisecond)
	}
	r.turn.Unlock()
	wg.Wait()
	first := <-reports
	for range cap(reports) - 1 {
		testsupport.Equal(t, <-reports, first, "two reports of one reload: %v")
	}
	testsupport.True(t, s.reloads == 1 && first.Result == unchanged, "%d reloads, the first of which was %q", s.reloads, first.Result)
	r.reload(bySignal)
	testsupport.Equal(t, s.reloads, 2, "%d reloads")
}

func TestAReadingWithATrialOfItsOwnIsNotShared(t *testing.T) {
	t.Parallel()
	r, s := newTestFile(t, to("http://127.0.0.1:1/bid"))
	s.refuse = errors.New("too great")
	r.turn.Lock() // a reload is in progress
	var wg sync.WaitGroup
	for _, limit := range []float64{0.3, 0.5} {
		wg.Go(func() {
			status, body := r.Post(t.Context(), Trial{Traffic: true, MaxChange: &limit})
			rep := body.(Report)
			testsupport.True(t, status == 422 && rep.Traffic == limit, "with the limit %v: %d %+v", limit, status, rep)
		})
	}
	wg.Go(func() { r.reload(bySignal) })
	wg.Go(func() {
		_, body := r.Post(t.Context(), Trial{})
		testsupport.True(t, body.(Report).Traffic == nil, "a reading without a trial responds with %+v", body)
	})
	testsupport.Eventually(t, "SIGHUP and the client without a trial share a reading", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.next != nil && len(r.next.by) == 2
	})
	r.turn.Unlock()
	wg.Wait()
	testsupport.Equal(t, s.reloads, 3, "%d readings")
	s.refuse = nil
	limit := 0.7
	_, body := r.Post(t.Context(), Trial{Traffic: true, MaxChange: &limit})
	testsupport.True(t, body.(Report).Traffic == 0.7, "the report of what was applied is %+v", body)
}

func TestOnlyAnotherContentMakesTheWatcherReload(t *testing.T) {
	t.Parallel()
	r, s := newTestFile(t, to("http://127.0.0.1:1/bid"))
	r.look()
	testsupport.Equal(t, s.reloads, 0, "an unchanged file was reloaded: %v")
	write(t, r, to("http://127.0.0.1:2/bid"))
	r.look()
	r.look()
	testsupport.Equal(t, s.reloads, 1, "%d reloads of one change")
	s.refuse = errors.New("no")
	write(t, r, to("http://127.0.0.1:3/bid"))
	r.look()
	r.look()
	testsupport.Equal(t, s.reloads, 2, "%d reloads: a refused configuration was tried again, but nothing changed")
}

// The content of a file that the new configuration is the first to name is noted before the reload, so
// that a correction during the reload is noticed.
func TestAFileThatIsNewAndChangesDuringTheReloadIsReadAgain(t *testing.T) {
	t.Parallel()
	r, s := newTestFile(t, to("http://127.0.0.1:1/bid"))
	token := newToken(t, r)
	s.during = func() { write(t, token, "another-token-of-the-operators") }
	r.look()
	s.during = nil
	testsupport.MustEqual(t, s.reloads, 1, "%d reloads of the new configuration")
	r.look()
	r.look()
	testsupport.Equal(t, s.reloads, 2, "%d reloads, want one more for the changed file")
}

// The same for a file that changes while the service starts.
func TestAFileThatChangesDuringTheStartIsReadAgain(t *testing.T) {
	t.Parallel()
	r, s := newTestFile(t, to("http://127.0.0.1:1/bid"))
	token := newToken(t, r)
	started := NewFile(r.path)
	cfg, _, err := config.Load(r.path, nil)
	testsupport.NoError(t, err)
	started.Remember(cfg)
	write(t, token, "another-token-of-the-operators")
	started.Start(s, cfg, zap.NewNop())
	started.look()
	testsupport.Equal(t, s.reloads, 1, "%d reloads")
}

// newToken makes r's configuration name a file with a token, and returns that file.
func newToken(t *testing.T, r *File) *File {
	t.Helper()
	token := &File{path: filepath.Join(t.TempDir(), "token")}
	write(t, token, "a-first-token-of-the-operators")
	write(t, r, to("http://127.0.0.1:1/bid")+"admin: {token_file: "+token.path+"}\n")
	return token
}

func TestAnErrorIsLoggedOnceHoweverOftenTheFileIsRead(t *testing.T) {
	t.Parallel()
	r, s := newTestFile(t, to("http://127.0.0.1:1/bid"))
	write(t, r, "ssps: []")
	for range 3 {
		r.look()
	}
	testsupport.True(t, s.failures == 1 && s.reloads == 0, "%d failures reported, want 1; %d reloads", s.failures, s.reloads)
	rep := r.reload(bySignal)
	testsupport.True(t, s.failures == 2 && rep.Result == refused && len(rep.Faults) != 0, "%d failures reported, want 2, since an operator asked: %+v", s.failures, rep)
	write(t, r, "ssps: [] # another")
	r.look()
	write(t, r, "routes: []")
	r.look()
	testsupport.Equal(t, s.failures, 3, "%d failures reported: the last error is another one")
	write(t, r, to("http://127.0.0.1:1/bid"))
	r.look()
	testsupport.True(t, s.reloads == 1 && r.failure == "", "%d reloads of the file that is good again, want 1", s.reloads)
}
