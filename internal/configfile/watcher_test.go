package configfile

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"adbuffer/internal/testsupport"
)

func TestMain(m *testing.M) { testsupport.Main(m) }

// patience bounds every wait; it passes only when something is broken.
const patience = testsupport.Patience

// watching is a Watcher of one file, and the content that it last saw.
type watching struct {
	*Watcher
	t    *testing.T
	file string
	seen chan Content
	last Content
}

func watch(t *testing.T, file string, every time.Duration) *watching {
	t.Helper()
	w := &watching{t: t, file: file, seen: make(chan Content, 1000)}
	w.Watcher = New(Options{Settle: 5 * time.Millisecond, Every: every, Warn: func(err error) { t.Error(err) }})
	w.Watch([]string{file})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.Run(t.Context(), func() { w.seen <- Look([]string{file}) })
	}()
	t.Cleanup(func() { <-ended }) // the context of a test ends before its cleanups
	w.await("the first look", func(Content) bool { return true })
	return w
}

func (w *watching) await(what string, ok func(Content) bool) {
	w.t.Helper()
	end := time.After(patience)
	for {
		select {
		case w.last = <-w.seen:
			if ok(w.last) {
				return
			}
		case <-end:
			w.t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// wantSeen waits until the watcher has seen the current content, which must differ from the last
// one seen.
func (w *watching) wantSeen(what string) {
	w.t.Helper()
	before, now := w.last, Look([]string{w.file})
	if maps.Equal(before, now) {
		w.t.Fatalf("%s: the content is still %v", what, now)
	}
	w.await(what, func(c Content) bool { return maps.Equal(c, now) })
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

// link makes a symbolic link, and replaces an existing one, as a kubelet does.
func link(t *testing.T, target, name string) {
	t.Helper()
	if err := os.Symlink(target, name+".new"); err != nil {
		t.Fatal(err)
	}
	rename(t, name+".new", name)
}

func mkdir(t *testing.T, dir string) string {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestEveryWayToChangeAFileIsNoticed(t *testing.T) {
	t.Parallel()
	dir := mkdir(t, filepath.Join(t.TempDir(), "conf"))
	file := filepath.Join(dir, "adbuffer.yaml")
	w := watch(t, file, time.Hour)
	write(t, file, "1")
	w.wantSeen("the file appears")
	write(t, file, "2")
	w.wantSeen("it is written anew")
	write(t, file+".tmp", "3")
	rename(t, file+".tmp", file)
	w.wantSeen("another file is renamed over it")
	rename(t, file, file+"~")
	write(t, file, "4")
	w.wantSeen("it is moved away, and a new one written, as vim does")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	w.wantSeen("it is removed")
	write(t, file, "5")
	w.wantSeen("it is back")
	rename(t, dir, dir+".old")
	w.wantSeen("its directory is moved away")
	write(t, filepath.Join(mkdir(t, dir), "adbuffer.yaml"), "6")
	w.wantSeen("there is another directory")
	write(t, file, "7")
	w.wantSeen("the file in it is written anew")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	w.wantSeen("the directory is removed")
	write(t, filepath.Join(mkdir(t, dir), "adbuffer.yaml"), "8")
	w.wantSeen("it is made again")
}

func TestASwapOfAKubernetesVolumeIsNoticed(t *testing.T) {
	t.Parallel()
	volume := t.TempDir()
	file := filepath.Join(volume, "adbuffer.yaml")
	write(t, filepath.Join(mkdir(t, filepath.Join(volume, "..2026_01")), "adbuffer.yaml"), "1")
	link(t, "..2026_01", filepath.Join(volume, "..data"))
	link(t, "..data/adbuffer.yaml", file)
	w := watch(t, file, time.Hour)
	for _, next := range []string{"..2026_02", "..2026_03"} {
		old, err := os.Readlink(filepath.Join(volume, "..data"))
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(mkdir(t, filepath.Join(volume, next)), "adbuffer.yaml"), next)
		link(t, next, filepath.Join(volume, "..data"))
		if err := os.RemoveAll(filepath.Join(volume, old)); err != nil {
			t.Fatal(err)
		}
		w.wantSeen("..data leads to " + next)
	}
}

// The volume is swapped when its directories are known but not watched yet.
func TestASwapWhileDirectoriesAreAddedIsNoticed(t *testing.T) {
	t.Parallel()
	volume := t.TempDir()
	file := filepath.Join(volume, "adbuffer.yaml")
	before, after := filepath.Join(volume, "..2026_01"), filepath.Join(volume, "..2026_02")
	write(t, filepath.Join(mkdir(t, before), "adbuffer.yaml"), "1")
	write(t, filepath.Join(mkdir(t, after), "adbuffer.yaml"), "2")
	link(t, "..2026_01", filepath.Join(volume, "..data"))
	link(t, "..data/adbuffer.yaml", file)
	events, err := fsnotify.NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	defer events.Close()
	swapped := false
	add := func(dir string) error {
		if !swapped {
			swapped = true
			link(t, "..2026_02", filepath.Join(volume, "..data"))
			if err := os.RemoveAll(before); err != nil {
				t.Error(err)
			}
		}
		return events.Add(dir)
	}
	a := &alarm{events: events, add: add, works: true, warn: func(err error) { t.Error(err) }}
	a.set([]string{file})
	got, want := events.WatchList(), []string{volume, after}
	slices.Sort(got)
	if !slices.Equal(got, want) || !maps.Equal(a.dirs, map[string]bool{volume: true, after: true}) {
		t.Errorf("it watches %v, want %v; it says %v", got, want, a.dirs)
	}
	if !a.concerns(filepath.Join(after, "adbuffer.yaml")) {
		t.Error("an event of the new file does not matter")
	}
}

func TestDirectoriesBehindSymbolicLinksAreWatched(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	one, two := mkdir(t, filepath.Join(root, "releases/1")), mkdir(t, filepath.Join(root, "releases/2"))
	write(t, filepath.Join(one, "adbuffer.yaml"), "1")
	write(t, filepath.Join(two, "adbuffer.yaml"), "2")
	link(t, one, filepath.Join(root, "current"))
	etc := mkdir(t, filepath.Join(root, "etc"))
	link(t, "../current/adbuffer.yaml", filepath.Join(etc, "adbuffer.yaml"))
	w := watch(t, filepath.Join(etc, "adbuffer.yaml"), time.Hour)
	write(t, filepath.Join(one, "adbuffer.yaml"), "1, edited")
	w.wantSeen("the file at the end of the links is written")
	link(t, two, filepath.Join(root, "current"))
	w.wantSeen("a link in the middle of the path leads elsewhere")
	write(t, filepath.Join(two, "adbuffer.yaml"), "2, edited")
	w.wantSeen("the file at the new end is written")
	link(t, filepath.Join(one, "adbuffer.yaml"), filepath.Join(etc, "adbuffer.yaml"))
	w.wantSeen("the first link leads elsewhere")
}

func TestOtherFilesMayBeWatchedLater(t *testing.T) {
	t.Parallel()
	a, b := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")
	write(t, a, "1")
	write(t, b, "1")
	w := watch(t, a, time.Hour)
	w.Watch([]string{b})
	w.await("a look at the new files", func(Content) bool { return true })
	w.file = a
	write(t, a, "2") // no event is raised
	write(t, b, "2")
	w.wantSeen("the file that is watched now is written")
}

// Writes to mapped memory raise no inotify event.
func TestPollingFindsChangesWithoutEvents(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "adbuffer.yaml")
	write(t, name, "before")
	w := watch(t, name, 20*time.Millisecond)
	file, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	mapped, err := syscall.Mmap(int(file.Fd()), 0, 6, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	copy(mapped, "after!")
	defer syscall.Munmap(mapped)
	w.wantSeen("memory that is mapped to the file is written")
}

// A system allows few inotify instances to each user.
func TestWithoutInotifyFilesArePolled(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "adbuffer.yaml")
	write(t, file, "1")
	var warned error
	seen := make(chan Content, 1000)
	w := New(Options{Settle: time.Hour, Every: 10 * time.Millisecond, Warn: func(err error) { warned = err }})
	w.open = func() (*fsnotify.Watcher, error) { return nil, syscall.EMFILE }
	w.Watch([]string{file})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.Run(ctx, func() { seen <- Look([]string{file}) })
	}()
	<-seen
	write(t, file, "2")
	for now := Look([]string{file}); !maps.Equal(<-seen, now); {
	}
	stop()
	go func() { // room for what is seen until it ends
		for range seen {
		}
	}()
	<-ended
	close(seen)
	if !errors.Is(warned, syscall.EMFILE) || !strings.Contains(warned.Error(), "noticed every 10ms only") {
		t.Errorf("it warned of %v", warned)
	}
}

func TestThePathOfAFileIsTraced(t *testing.T) {
	t.Parallel()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	in := func(names ...string) (paths []string) {
		for _, n := range names {
			paths = append(paths, filepath.Join(root, n))
		}
		return paths
	}
	mkdir(t, filepath.Join(root, "real/deep"))
	write(t, filepath.Join(root, "real/deep/file"), "")
	link(t, "real/deep", filepath.Join(root, "short"))
	link(t, "../real/../short/file", filepath.Join(root, "real/crooked"))
	link(t, "loop", filepath.Join(root, "loop"))
	for _, c := range []struct {
		path        string
		dirs, names []string // names: some of the names whose events matter
	}{
		{"real/deep/file", in("real/deep"), in("real", "real/deep", "real/deep/file")},
		{"short/file", in(".", "real/deep"), in("short", "real/deep/file")},
		{"real/crooked", in("real", ".", "real/deep"), in("real/crooked", "short", "real/deep/file")},
		{"short/../deep/file", in(".", "real/deep"), in("short", "real/deep/file")},
		{"real/none", in("real"), in("real/none")},
		{"real/none/file", in("real"), in("real/none")},
		{"short/none", in(".", "real/deep"), in("short", "real/deep/none")},
		{"real/deep/file/beyond/x", in("real/deep/file"), in("real/deep/file")},
	} {
		names := map[string]bool{}
		if got := trace(root+"/"+c.path, names); !slices.Equal(got, c.dirs) {
			t.Errorf("%s leads through %v, want %v", c.path, got, c.dirs)
		}
		for _, n := range c.names {
			if !names[n] {
				t.Errorf("%s: %s is not among the names of the path, %v", c.path, n, names)
			}
		}
	}
	if n := len(trace(filepath.Join(root, "loop"), map[string]bool{})); n > maxLinks+1 {
		t.Errorf("a link that leads to itself was followed %d times", n)
	}
}

func TestAnUnreadableFileIsAStateToo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(dir, "missing")
	before := Look([]string{pipe, missing, dir})
	if !strings.Contains(before[pipe], "regular file") || !strings.Contains(before[dir], "regular file") || !strings.Contains(before[missing], "no such file") {
		t.Error(before)
	}
	write(t, missing, "")
	if after := Look([]string{pipe, missing, dir}); maps.Equal(before, after) {
		t.Error("a file that appears, empty, changes nothing")
	}
}

// Before, a process that could open no more files reported a failed reload of a file that had not
// changed.
func TestAFileThatCannotBeOpenedForLackOfDescriptorsHasNotChanged(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, "x")
	before := Look([]string{file})
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	none := limit
	none.Cur = 0
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	_, openErr := os.Open(file)
	now, changed := before.Update()
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(openErr, syscall.EMFILE) {
		t.Fatalf("the file could be opened: %v", openErr)
	}
	if changed || !maps.Equal(now, before) {
		t.Errorf("changed is %v: %v, before %v", changed, now, before)
	}
	write(t, file, "y")
	if _, changed := now.Update(); !changed {
		t.Error("a change was not seen")
	}
}
