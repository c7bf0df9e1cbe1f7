package listen

import (
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"adbuffer/internal/test/testsupport"

	"golang.org/x/sys/unix"
)

// passed returns files as systemd passes them, by their names. A name may contain the kind of the
// socket: "traffic:udp".
func passed(t *testing.T, names ...string) (files []*os.File) {
	t.Helper()
	for _, n := range names {
		name, kind, _ := strings.Cut(n, ":")
		var fd int
		switch kind {
		case "udp":
			var err error
			fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
			must(t, err)
		case "connected":
			pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
			must(t, err)
			unix.Close(pair[1])
			fd = pair[0]
		case "file":
			f, err := os.Open(os.DevNull)
			must(t, err)
			t.Cleanup(func() { f.Close() })
			fd, err = unix.Dup(int(f.Fd()))
			must(t, err)
		default:
			l, err := net.Listen("tcp", "127.0.0.1:0")
			must(t, err)
			f, err := l.(*net.TCPListener).File()
			must(t, err)
			fd, err = unix.Dup(int(f.Fd()))
			must(t, err)
			must(t, f.Close())
			must(t, l.Close())
			must(t, syscall.SetNonblock(fd, false)) // as systemd does
		}
		f := os.NewFile(uintptr(fd), name)
		t.Cleanup(func() { f.Close() })
		files = append(files, f)
	}
	return files
}

func TestSocketsOfSystemdAreFoundByNameOrElseByOrder(t *testing.T) {
	traffic, admin := trafficAt("tcp", "127.0.0.1:1"), adminAt("127.0.0.1:2")
	for _, row := range []struct {
		names          []string
		traffic, admin int // their indexes
	}{
		{[]string{"adbuffer.socket"}, 0, -1}, {[]string{"adbuffer.socket", "adbuffer.socket"}, 0, 1},
		{[]string{"LISTEN_FD_3", "LISTEN_FD_4"}, 0, 1},
		{[]string{"traffic"}, 0, -1}, {[]string{"traffic", "admin"}, 0, 1}, {[]string{"admin", "traffic"}, 1, 0},
	} {
		files := passed(t, row.names...)
		given, err := assign(files, traffic, admin)
		if err != nil {
			t.Errorf("%v: %v", row.names, err)
			continue
		}
		for name, at := range map[string]int{"traffic": row.traffic, "admin": row.admin} {
			l := given[name]
			testsupport.True(t, (l != nil) == (at >= 0), "%v: %s is %v", row.names, name, l)
			if l == nil {
				continue
			}
			want, err := net.FileListener(files[at])
			must(t, err)
			testsupport.True(t, l.Addr().String() == want.Addr().String(), "%v: %s is at %v, want %v", row.names, name, l.Addr(), want.Addr())
			must(t, want.Close())
			dial(t, l.Addr())
			wantAccepted(t, l, 1)
			must(t, l.Close())
			wantClosed(t, l) // Close must not hang, though systemd's sockets block
		}
	}
}

func TestErrorsAboutSystemdsSocketsNameTheSetting(t *testing.T) {
	traffic, admin := trafficAt("tcp", "127.0.0.1:1"), adminAt("127.0.0.1:2")
	for _, row := range []struct {
		names []string
		says  []string
	}{
		{[]string{"admin"}, []string{`no socket is named "traffic", for server.listen`, "FileDescriptorName=traffic"}},
		{[]string{"a", "b", "c"}, []string{"3 sockets were passed (a, b, c)", `"traffic"`, "FileDescriptorName="}},
		{[]string{"traffic", "operators"}, []string{`the socket "operators" is named neither "traffic" nor "admin"`}},
		{[]string{"traffic", "traffic"}, []string{`two sockets are named "traffic"`}},
		{[]string{"traffic:udp"}, []string{`the socket "traffic" for server.listen`, "ListenStream="}},
		{[]string{"traffic", "admin:connected"}, []string{`the socket "admin" for admin.listen`, "Accept=no"}},
		{[]string{"traffic:file"}, []string{`the socket "traffic" for server.listen`}},
	} {
		given, err := assign(passed(t, row.names...), traffic, admin)
		if err == nil {
			t.Errorf("%v fit", row.names)
			continue
		}
		for _, says := range row.says {
			testsupport.True(t, strings.Contains(err.Error(), says), "%v: %v\ndoes not contain %q", row.names, err, says)
		}
		testsupport.True(t, given == nil, "%v: %v is left open", row.names, given)
	}
}
