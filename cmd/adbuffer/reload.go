package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"adbuffer/internal/app"
	"adbuffer/internal/config"
	"adbuffer/internal/configwatch"
)

const (
	// settle is longer than an editor or a kubelet takes between its steps.
	settle = 250 * time.Millisecond
	// lookEvery bounds how late a change is found that nobody tells of.
	lookEvery = 10 * time.Second
)

// Who asks for a reload.
const (
	bySignal = "SIGHUP"
	byFile   = "file"
	byAdmin  = "POST /reload"
)

// inForce is what has the configuration in force: an *app.App.
type inForce interface {
	Reload(cfg *config.Config) (*app.Reloaded, error)
	ReloadFailed(err error)
}

// reloader brings the file of --config into force again, whoever asks for it.
type reloader struct {
	path string

	// Set by start, before anybody can ask.
	app   inForce
	log   *zap.Logger
	watch *configwatch.Watcher

	mu   sync.Mutex // guards next; never held while a file is read
	next *attempt   // waits for its turn, and has not read the file yet

	turn    sync.Mutex          // of the attempt under way; guards the fields below
	content configwatch.Content // of all files, as they were just before they were last read
	unread  string              // why the file could not be read, or what is wrong with it; empty if nothing
}

// attempt is one reading of the file, for all who asked before it began.
type attempt struct {
	by     []string
	done   chan struct{} // closed when report is there
	report reloadReport
}

// newReloader returns one for the file at path. It is made before the file is
// read for the first time, and will notice what changes from now on.
func newReloader(path string) *reloader {
	return &reloader{path: path, content: configwatch.Read([]string{path})}
}

// start is called once a has been made of cfg, and before it runs.
func (r *reloader) start(a inForce, cfg *config.Config, log *zap.Logger) {
	r.app, r.log = a, log
	r.watch = configwatch.New(configwatch.Options{
		Settle: settle, Every: lookEvery,
		Warn: func(err error) { log.Warn("watching the configuration", zap.Error(err)) },
	})
	r.follow(cfg)
}

// run reloads when a file changes and when the process is sent SIGHUP, until ctx
// ends.
func (r *reloader) run(ctx context.Context, hangups <-chan os.Signal) {
	go r.watch.Run(ctx, r.look)
	for {
		select {
		case <-hangups:
			r.reload(bySignal)
		case <-ctx.Done():
			return
		}
	}
}

// post is what POST /reload does.
func (r *reloader) post() (status int, answer any) { return r.reload(byAdmin).answer() }

// follow watches the files of cfg, which is in force from now on.
func (r *reloader) follow(cfg *config.Config) {
	files := append(filesOf(cfg), r.path)
	content := configwatch.Read(files)
	for f := range content {
		if known, ok := r.content[f]; ok { // what has changed since is to be noticed
			content[f] = known
		}
	}
	r.content = content
	r.watch.Watch(files)
}

// look reloads if a file has another content than when it was last read. A
// configuration with faults is read again although nothing changed: it may name a
// file that was missing, and is not watched.
func (r *reloader) look() {
	r.turn.Lock()
	again := r.unread != "" || !maps.Equal(r.content, configwatch.Read(r.filesLocked()))
	r.turn.Unlock()
	if again {
		r.reload(byFile)
	}
}

func (r *reloader) filesLocked() []string { return slices.Collect(maps.Keys(r.content)) }

// reload reads the file, once for all who ask while another reading is under way,
// and returns what came of it.
func (r *reloader) reload(by string) *reloadReport {
	r.mu.Lock()
	if a := r.next; a != nil {
		a.by = append(a.by, by)
		r.mu.Unlock()
		<-a.done
		return &a.report
	}
	a := &attempt{by: []string{by}, done: make(chan struct{})}
	r.next = a
	r.mu.Unlock()

	r.turn.Lock()
	defer r.turn.Unlock()
	r.mu.Lock()
	r.next = nil // who asks from now on is served by the next
	r.mu.Unlock()
	r.attemptLocked(a)
	close(a.done)
	return &a.report
}

// attemptLocked reads the file and brings it into force; app logs what came of
// it.
func (r *reloader) attemptLocked(a *attempt) {
	slices.Sort(a.by)
	a.by = slices.Compact(a.by)
	by := zap.String("by", strings.Join(a.by, ", "))
	r.content = configwatch.Read(r.filesLocked())
	cfg, warnings, err := r.load()
	if err != nil {
		a.report.refused(err)
		if !slices.Equal(a.by, []string{byFile}) || err.Error() != r.unread {
			r.log.Info("reading the configuration again", by)
			r.app.ReloadFailed(err)
		}
		r.unread = err.Error()
		return
	}
	r.unread = ""
	r.log.Info("reading the configuration again", by)
	res, err := r.app.Reload(cfg)
	switch {
	case errors.Is(err, app.ErrStopping):
		r.log.Warn("the configuration stays as it is while adbuffer drains", by)
		a.report.stopping()
	case err != nil:
		a.report.refused(err)
	default:
		a.report.done(res, warnings)
		r.follow(cfg)
	}
	if a.report.Result == reloadApplied {
		logWarnings(r.log, warnings)
	}
}

func (r *reloader) load() (*config.Config, []config.Warning, error) {
	// The process may have been started with a pipe, which has nothing more to say
	// and could hold up every reload to come.
	if info, err := os.Stat(r.path); err == nil && !info.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("config: %s is no regular file and cannot be read again", r.path)
	}
	return config.Load(r.path, os.LookupEnv)
}
