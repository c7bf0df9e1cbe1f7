package config

import "fmt"

// Machine holds what the machine and the process allow, as they were when the configuration was read.
type Machine struct {
	OpenFiles  int    // files that the process may have open (ulimit -n); 0 = unknown or no limit
	Memory     int    // bytes that the process may take; 0 = unknown
	MemoryFrom string // what limits Memory
}

// Limit is a limit in force: a setting, or less if the machine does not allow as much.
type Limit struct {
	Value   int
	setting string // its path
	asked   int    // its value
	why     string // the machine lowers it; "" = it allows the setting
}

// From returns the path of the setting. If the machine lowers it, From also says why.
func (l Limit) From() string {
	if l.why == "" {
		return l.setting
	}
	return fmt.Sprintf("%s, lowered from %d: %s", l.setting, l.asked, l.why)
}

// Lowered says that the machine lowers the setting, and why; "" = it does not.
func (l Limit) Lowered() string {
	if l.why == "" {
		return ""
	}
	return fmt.Sprintf("%s is %d, lowered from %d: %s", l.setting, l.Value, l.asked, l.why)
}

const (
	spareFiles = 128
	// memoryShare is the share of the memory that bodies may hold, as a divisor. The buffer of a body
	// may be twice as large as the body, and garbage may take as much again.
	memoryShare = 4
	// minBufferedBytes is the lowest limit that the memory leads to.
	minBufferedBytes = 1 << 20
)

// MaxConnections is the limit of clients' connections in force.
func (c *Config) MaxConnections() Limit { return c.Machine.maxConnections(c) }

// MaxBufferedBytes is the limit of bodies' bytes in force.
func (c *Config) MaxBufferedBytes() Limit { return c.Machine.maxBufferedBytes(c) }

// BufferedBytesLimit is how many bytes of the SSP's requests and responses may be held at once:
// max_buffered_bytes; if that is 0, a quarter of ofAll, the server's.
func (s *SSP) BufferedBytesLimit(ofAll int) int {
	if s.MaxBufferedBytes > 0 {
		return s.MaxBufferedBytes
	}
	return max(1, ofAll/4)
}

func (m *Machine) maxConnections(c *Config) Limit {
	l := Limit{Value: c.Server.MaxConnections, setting: "server.max_connections", asked: c.Server.MaxConnections}
	if m.OpenFiles > 0 {
		free := m.OpenFiles - m.spareFiles()
		// Clients get at least half of the free files, whatever pool.max_conns says.
		l.lower(max(1, free/2, free-c.upstreamConns()), fmt.Sprintf("the process may open %d files (ulimit -n)", m.OpenFiles))
	}
	return l
}

func (m *Machine) maxBufferedBytes(c *Config) Limit {
	l := Limit{Value: c.Server.MaxBufferedBytes, setting: "server.max_buffered_bytes", asked: c.Server.MaxBufferedBytes}
	if m.Memory > 0 {
		l.lower(max(minBufferedBytes, m.Memory/memoryShare), fmt.Sprintf("a quarter of the %d bytes of memory %s", m.Memory, m.MemoryFrom))
	}
	return l
}

func (l *Limit) lower(most int, why string) {
	if l.Value > most {
		l.Value, l.why = most, why
	}
}

// spareFiles returns how many open files are neither of clients nor of SSPs: listeners, logs, epoll,
// certificates being read, the admin listener's clients.
func (m *Machine) spareFiles() int { return min(spareFiles, m.OpenFiles/2) }

// upstreamConns returns how many connections to SSPs may be open.
func (c *Config) upstreamConns() (n int) {
	for i := range c.SSPs {
		n += c.SSPs[i].Pool.MaxConns
		if c.SSPs[i].HealthCheck.Path != "" {
			n += len(c.SSPs[i].Endpoints)
		}
	}
	return n
}

// inForce warns of each key of the configuration that the machine lowers. A default that it lowers is
// what an operator expects of a small machine: the log at the start has the limits in force.
func (w *warner) inForce(cfg *Config) {
	m := &w.machine.Machine
	if l := m.maxConnections(cfg); l.why != "" && w.isSet(l.setting) {
		w.add(l.setting, "%d are in force on this machine, not %d: %s, also for up to %d connections to SSPs (the sum of pool.max_conns, and one for each endpoint with a health_check) and for %d other files; raise ulimit -n, or lower server.max_connections or pool.max_conns",
			l.Value, l.asked, l.why, cfg.upstreamConns(), m.spareFiles())
	}
	if l := m.maxBufferedBytes(cfg); l.why != "" && w.isSet(l.setting) {
		w.add(l.setting, "%d bytes are in force on this machine, not %d: %s; give it more memory or lower this",
			l.Value, l.asked, l.why)
	}
}
