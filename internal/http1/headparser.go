package http1

import (
	"bytes"

	"adbuffer/internal/httpsyntax"
)

// headParser reads a head line by line, as it comes. Each byte is looked at once,
// however many reads bring it. The zero headParser with maxFields set is at the
// start of a head.
//
// It is strict about all that could make two readers see two messages. What
// RFC 9112 lets a proxy mend (obs-fold, a bare LF as line end) it mends, and
// sets odd, so that the connection is not used again.
type headParser struct {
	head
	maxFields int // of the header; more are errTooManyFields

	fields       int  // field lines so far
	first        int  // where the first field line begins; 0 until the status line is read
	next         int  // where the next line begins
	searched     int  // no LF stands between next and here
	rewritten    bool // the lines are written one by one, and not copied in one block at the end
	framingField bool // the last field decided framing
}

// parse goes on reading the head, which begins at b[0] and of which b may hold
// more than it did at the call before. It returns how many bytes the head takes,
// 0 as long as its end has not come. It appends the fields' lines to lines, which
// must be what the call before returned. If keep is false it writes no lines.
func (p *headParser) parse(b, lines []byte, keep bool) (int, []byte, error) {
	for {
		line, end, bare, ok := cutLine(b, p.next, p.searched)
		if !ok {
			p.searched = len(b)
			return 0, lines, nil
		}
		start := p.next
		p.next, p.searched = end, end
		if p.first == 0 {
			p.head = head{contentLength: -1, notReusable: bare}
			if err := p.parseStatusLine(line); err != nil {
				return 0, lines, err
			}
			p.first, p.rewritten = end, bare
			continue
		}
		folded := len(line) > 0 && (line[0] == ' ' || line[0] == '\t') // obs-fold, RFC 9112, section 5.2
		if bare || folded {
			p.notReusable = true
			if !p.rewritten { // from here on the lines are written one by one
				p.rewritten = true
				if keep {
					lines = append(lines, b[p.first:start]...)
				}
			}
		}
		switch {
		case len(line) == 0:
			if !p.rewritten && keep {
				lines = append(lines, b[p.first:start]...)
			}
			p.notReusable = p.notReusable || p.status == 204 && (p.hasTE || p.contentLength > 0)
			return end, lines, nil
		case folded:
			value := httpsyntax.Trim(line)
			switch {
			case p.fields == 0:
				return 0, lines, errField
			case p.framingField:
				return 0, lines, errFoldedFraming
			case !httpsyntax.IsValue(value):
				return 0, lines, errFieldValue
			}
			if keep {
				lines = append(lines[:len(lines)-2], ' ')
				lines = append(append(lines, value...), '\r', '\n')
			}
			continue
		}
		name, value, err := cutField(line)
		if err != nil {
			return 0, lines, err
		}
		if p.fields++; p.fields > p.maxFields {
			return 0, lines, errTooManyFields
		}
		if p.framingField, err = p.noteField(name, value); err != nil {
			return 0, lines, err
		}
		if p.rewritten && keep {
			lines = append(append(lines, line...), '\r', '\n')
		}
	}
}

// cutLine returns the line that starts at b[from:], without its end, where the
// next one starts, and whether it ended in a bare LF. ok is false while the
// line's end has not come. No LF stands between from and searched.
func cutLine(b []byte, from, searched int) (line []byte, next int, bare, ok bool) {
	searched = max(from, searched)
	i := bytes.IndexByte(b[searched:], '\n')
	if i < 0 {
		return nil, 0, false, false
	}
	end := searched + i
	if end > from && b[end-1] == '\r' {
		return b[from : end-1], end + 1, false, true
	}
	return b[from:end], end + 1, true, true
}
