package reload

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"go.uber.org/zap"

	"adbuffer/internal/machine/configfile"
	"adbuffer/internal/setup/config"
)

// The reasons for a reload, as the log names them.
const (
	bySignal = "SIGHUP"
	byFile   = "file"
	byAdmin  = "POST /reload"
)

// service is what a File reloads: an *app.App.
type service interface {
	Reload(ctx context.Context, cfg *config.Config, t *Trial) (*Report, error)
	ReloadFailed(err error)
}

// File is the configuration file of a running service. It is read again on SIGHUP,
// on POST /reload, and when its content or that of a file that it names changes.
type File struct {
	path string

	// Set by Start, before a reload can begin.
	service service
	log     *zap.Logger
	watch   configfile.Watcher

	mu   sync.Mutex // guards next; never held while a file is read
	next *reading   // the reading that waits for turn; nil = no reading waits

	turn    sync.Mutex         // held during a reading; guards the fields below
	content configfile.Content // content of all files just before they were last read
	failure string             // the error of the last reading, or the errors in the file; "" = no error
}

// Trial says how a configuration is tried on the sampled traffic before it is applied. A zero Trial leaves this to
// admin.sample.max_change.
type Trial struct {
	Traffic   bool     // the configuration is tried whatever admin.sample.max_change is
	MaxChange *float64 // a limit that takes the place of admin.sample.max_change, and must be kept; needs Traffic
	Result    any      // what the configuration would do to the traffic; set by the service, nil = not tried
}

// reading is one reading of the file, on behalf of all requests that arrived before it began, or of one request with a
// trial of its own.
type reading struct {
	ctx    context.Context
	by     []string
	trial  Trial
	done   chan struct{} // closed when report is complete
	report Report
}

// NewFile returns the file at path. Call NewFile before the file is read for the first time, since it
// detects changes from then on.
func NewFile(path string) *File {
	return &File{path: path, content: configfile.Look([]string{path})}
}

// Remember notes the content of the files that cfg names. Call it before the service reads these files,
// so that a change during the start of the service is detected.
func (f *File) Remember(cfg *config.Config) { f.content = f.contentOf(cfg) }

// Start sets the service, which was made from cfg. Call it before Run, and before the service runs.
func (f *File) Start(s service, cfg *config.Config, log *zap.Logger) {
	f.service, f.log = s, log
	f.follow(cfg, f.content)
}

// Run reloads when a file changes and on each SIGHUP, until ctx ends.
func (f *File) Run(ctx context.Context, hangups <-chan os.Signal) {
	go f.watch.Run(ctx, f.look)
	for {
		select {
		case <-hangups:
			f.reload(bySignal)
		case <-ctx.Done():
			return
		}
	}
}

// Post serves POST /reload. A client that asks for a trial shares its reading with no other request, and nothing is
// applied if the client gives up before the end of the trial.
func (f *File) Post(ctx context.Context, t Trial) (status int, body any) {
	if !t.Traffic {
		return f.reload(byAdmin).response()
	}
	r := &reading{ctx: ctx, by: []string{byAdmin}, trial: t}
	f.turn.Lock()
	defer f.turn.Unlock()
	content := f.content
	f.readLocked(r)
	if ctx.Err() != nil {
		f.content = content // so that look applies a change which this client wanted to try
	}
	return r.report.response()
}

// contentOf returns the content of the files that cfg names: as of the last reading or, for a file that no
// configuration has named before, the current content.
func (f *File) contentOf(cfg *config.Config) configfile.Content {
	content := configfile.Look(append(cfg.Files(), f.path))
	for name := range content {
		if known, ok := f.content[name]; ok { // a change since the last reading must be noticed
			content[name] = known
		}
	}
	return content
}

// follow watches the files of cfg, the current configuration. content is the content that these files had
// before the service read them.
func (f *File) follow(cfg *config.Config, content configfile.Content) {
	f.content = content
	f.watch.Watch(append(cfg.Files(), f.path))
}

// look reloads if a file changed since it was last read. It always reloads after a failed reading, since
// the configuration may name a missing file, which cannot be watched.
func (f *File) look() {
	f.turn.Lock()
	_, changed := f.content.Update()
	again := changed || f.failure != ""
	f.turn.Unlock()
	if again {
		f.reload(byFile)
	}
}

// reload reads the file and applies it. All calls that arrive during a reading share the next one.
func (f *File) reload(by string) *Report {
	f.mu.Lock()
	if r := f.next; r != nil {
		r.by = append(r.by, by)
		f.mu.Unlock()
		<-r.done
		return &r.report
	}
	r := &reading{ctx: context.Background(), by: []string{by}, done: make(chan struct{})}
	f.next = r
	f.mu.Unlock()

	f.turn.Lock()
	defer f.turn.Unlock()
	f.mu.Lock()
	f.next = nil // the file may change after it was read, so calls from now on need another reading
	f.mu.Unlock()
	f.readLocked(r)
	close(r.done)
	return &r.report
}

// readLocked makes r's report. The service logs errors and changes.
func (f *File) readLocked(r *reading) {
	slices.Sort(r.by)
	r.by = slices.Compact(r.by)
	by := zap.String("by", strings.Join(r.by, ", "))
	f.content, _ = f.content.Update()
	cfg, warnings, err := f.load()
	if err != nil {
		r.report = failed(err)
		if !slices.Equal(r.by, []string{byFile}) || err.Error() != f.failure {
			f.log.Info("reading the configuration again", by)
			f.service.ReloadFailed(err)
		}
		f.failure = err.Error()
		return
	}
	f.failure = ""
	f.log.Info("reading the configuration again", by)
	content := f.contentOf(cfg) // before the service reads the files, which may take long
	report, err := f.service.Reload(r.ctx, cfg, &r.trial)
	if err != nil {
		r.report = failed(err)
		r.report.Traffic = r.trial.Result
		if r.report.Result == draining {
			f.log.Warn("the configuration stays as it is while adbuffer drains", by)
		}
		return
	}
	r.report = *report
	r.report.Traffic = r.trial.Result
	r.report.Warnings = append(warnings, report.Warnings...)
	f.follow(cfg, content)
	if r.report.Result == applied {
		LogWarnings(f.log, r.report.Warnings)
	}
}

func (f *File) load() (*config.Config, []config.Warning, error) {
	// The process may have been started with a pipe. A pipe cannot be read again, and could block
	// every later reload.
	if info, err := configfile.Stat(f.path); err == nil && !info.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("config: %s is no regular file and cannot be read again", f.path)
	}
	return config.Load(f.path, config.OSEnv())
}

// LogWarnings logs the warnings about a configuration that is in force.
func LogWarnings(log *zap.Logger, warnings []config.Warning) {
	for _, w := range warnings {
		log.Warn("configuration", zap.String("path", w.Path), zap.String("warning", w.Text))
	}
}
