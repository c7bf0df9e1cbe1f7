package listen

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/coreos/go-systemd/v22/activation"
	"golang.org/x/sys/unix"
)

// activated returns the listeners that systemd has passed, or another program that follows its protocol, by
// Options.Name. It returns nil if none were passed. FileDescriptorName says which listener a socket is for; if no
// socket has a known name, the order is traffic, admin. The addresses of passed sockets replace the configured
// addresses. activated removes the protocol's variables from the environment. man 3 sd_listen_fds.
func activated(traffic, admin Options) (map[string]*Listener, error) {
	files := activation.Files(true)
	if len(files) == 0 {
		return nil, nil
	}
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	given, err := assign(files, traffic, admin)
	if err != nil {
		return nil, fmt.Errorf("socket activation: %w", err)
	}
	return given, nil
}

func assign(files []*os.File, options ...Options) (given map[string]*Listener, err error) {
	defer func() {
		if err != nil {
			closeAll(given)
			given = nil
		}
	}()
	optionOf := func(name string) int {
		return slices.IndexFunc(options, func(o Options) bool { return o.Name == name })
	}
	byName, names := false, make([]string, len(files))
	for i, f := range files {
		names[i] = f.Name()
		byName = byName || optionOf(f.Name()) >= 0
	}
	if !byName && len(files) > len(options) {
		return nil, fmt.Errorf("%d sockets were passed (%s), and none is named %q; set FileDescriptorName= in their .socket units", len(files), strings.Join(names, ", "), options[0].Name)
	}
	given = make(map[string]*Listener)
	for i, f := range files {
		at := i
		if byName {
			at = optionOf(f.Name())
			if at < 0 {
				return given, fmt.Errorf("the socket %q is named neither %q nor %q; set FileDescriptorName= in its .socket unit", f.Name(), options[0].Name, options[1].Name)
			}
		}
		o := options[at]
		if given[o.Name] != nil {
			return given, fmt.Errorf("two sockets are named %q; give one ListenStream= to each .socket unit", o.Name)
		}
		l, err := fromFile(f)
		if err != nil {
			return given, fmt.Errorf("the socket %q for %s: %w", f.Name(), o.Key, err)
		}
		given[o.Name] = &Listener{options: o, socket: l, addr: l.Addr()}
	}
	if given[options[0].Name] == nil {
		return given, fmt.Errorf("no socket is named %q, for %s; set FileDescriptorName=%[1]s in its .socket unit", options[0].Name, options[0].Key)
	}
	return given, nil
}

func closeAll(given map[string]*Listener) {
	for _, l := range given {
		l.Close()
	}
}

// fromFile returns a listener for a duplicate of f's descriptor; f stays open.
func fromFile(f *os.File) (listenSocket, error) {
	listens := 0
	err := withFDs(func(fds ...int) (err error) {
		listens, err = unix.GetsockoptInt(fds[0], unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
		return err
	}, f)
	if err != nil || listens == 0 {
		return nil, errors.New("it is not a listening stream socket; use ListenStream= and Accept=no")
	}
	l, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	s, ok := l.(listenSocket)
	if !ok {
		l.Close()
		return nil, errors.New("it is neither TCP nor unix")
	}
	return s, nil
}
