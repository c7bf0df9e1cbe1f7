//go:build !linux

package listen

import "go.uber.org/zap"

// handover needs abstract unix sockets, which only Linux has. On other systems each process binds
// its own socket with SO_REUSEPORT.
type handover struct{}

func takeOver(*zap.Logger, Options, Options) (*handover, map[string]*Listener, error) {
	return nil, nil, nil
}

func (*handover) start(*Sockets) {}

func (*handover) serving(func(bool)) {}

func (*handover) drain() {}

func (*handover) close() (last bool, release func()) { return true, func() {} }
