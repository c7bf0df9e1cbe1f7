package http1

import (
	"bytes"

	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/syntax"
)

// headParser parses a message head line by line, as the lines arrive. It reads each byte once, however many pieces
// the head arrives in. A headParser in which only maxFields is set is at the start of a message head.
//
// It rejects everything that two parsers could understand as different messages. It repairs what RFC 9112 lets a
// proxy repair (obs-fold, a bare LF), and sets notReusable.
type headParser struct {
	head
	maxFields int // fields of the header; more cause errTooManyFields

	fields       int  // fields so far
	first        int  // offset of the first field; 0 until the status line is parsed
	next         int  // offset of the next line
	searched     int  // there is no LF between next and this offset
	rewritten    bool // the parser appends lines one by one, instead of all together at the end
	framingField bool // the last field defines the framing
}

// parse continues with the message head that begins at b[0]; b may hold more than at the previous
// call. It returns the length of the message head, or 0 while it is incomplete. It appends the
// fields to lines, which must be the result of the previous call. If keep is false it appends
// nothing.
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
			p.head = head{contentLength: -1, idleLimit: exchange.NoIdleLimit, notReusable: p.notReusable || bare}
			if err := p.parseStatusLine(line); err != nil {
				return 0, lines, err
			}
			p.first, p.rewritten = end, bare
			continue
		}
		folded := len(line) > 0 && (line[0] == ' ' || line[0] == '\t') // obs-fold, RFC 9112, section 5.2
		if bare || folded {
			p.notReusable = true
			if !p.rewritten { // from here on the parser writes the lines one by one
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
			p.notReusable = p.notReusable || (p.status < 200 || p.status == 204) && (p.hasTE || p.contentLength > 0)
			return end, lines, nil
		case folded:
			var err error
			lines, err = p.unfold(line, lines, keep)
			if err != nil {
				return 0, lines, err
			}
			continue
		}
		name, value, err := cutField(line)
		if err != nil {
			return 0, lines, err
		}
		p.fields++
		if p.fields > p.maxFields {
			return 0, lines, errTooManyFields
		}
		p.framingField, err = p.noteField(name, value)
		if err != nil {
			return 0, lines, err
		}
		if p.rewritten && keep {
			lines = append(append(lines, line...), '\r', '\n')
		}
	}
}

// behindInterim returns the parser of the message head that follows p's interim response. It inherits notReusable,
// since a doubt about the framing of the interim response makes the whole connection doubtful.
func (p *headParser) behindInterim() headParser {
	return headParser{maxFields: p.maxFields, head: head{notReusable: p.notReusable || p.http10 || p.close}}
}

// unfold appends an obs-fold line to the field before it, with a space between them.
func (p *headParser) unfold(line, lines []byte, keep bool) ([]byte, error) {
	value := syntax.Trim(line)
	switch {
	case p.fields == 0:
		return lines, errField
	case p.framingField:
		return lines, errFoldedFraming
	case !syntax.IsValue(value):
		return lines, errFieldValue
	}
	if keep {
		lines = append(lines[:len(lines)-2], ' ')
		lines = append(append(lines, value...), '\r', '\n')
	}
	return lines, nil
}

// cutLine returns the line that starts at b[from:], without its end, and the offset of the next
// line. bare reports whether the line ended in a bare LF. ok is false while the line is incomplete.
// No LF is between from and searched.
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
