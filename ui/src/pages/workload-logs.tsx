// What a workload prints, as it prints it. Long logs are shown by the lines that can be seen.
import { type ReactNode, useEffect, useLayoutEffect, useMemo, useRef, useState } from 'react';
import { ask, withQuery, workloadPath } from '../api/client.ts';
import type { Workload } from '../api/types.ts';
import { save } from '../model/csv.ts';
import { isFinal } from '../model/status.ts';
import { type Trouble, TroubleNote, trouble } from '../parts/failure.tsx';
import { Button, Empty } from '../parts/small.tsx';

const LINE = 18;
const LINES_MAX = 20_000;
const TAIL = 5000;
/** Lines that wrap are all there at once, so fewer are shown. */
const WRAPPED_MAX = 2000;
const WRAPS_KEPT = 'berth.log.wraps';

// Colours and cursor movements of terminals say nothing here.
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for.
const ESCAPES = /\u001b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\u0007]*(?:\u0007|\u001b\\)|[@-_])/g;

function useLog(workload: Workload, rank: number, run: number | null) {
  const [lines, setLines] = useState<string[]>([]);
  const [problem, setProblem] = useState<Trouble | null>(null);
  const [ended, setEnded] = useState(false);
  const { project, name } = workload;
  // A log that was looked for too early is looked for again when the workload runs.
  const hasRun = workload.runs > 0;
  useEffect(() => {
    const stop = new AbortController();
    setLines([]);
    setProblem(null);
    setEnded(false);
    let rest = '';
    let got: string[] = [];
    let timer: ReturnType<typeof setTimeout> | null = null;
    const show = () => {
      timer = null;
      const more = got;
      got = [];
      setLines(before => [...before, ...more].slice(-LINES_MAX));
    };
    const read = async () => {
      const path = workloadPath({ project, name }, '/logs');
      const query = { rank, run, tail: TAIL, follow: true };
      const response = await ask('GET', withQuery(path, query), undefined, stop.signal);
      const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { done, value } = await reader.read();
        const parts = (rest + (value ?? '')).split(/\r\n|\n/);
        rest = done ? '' : (parts.pop() ?? '');
        // What a carriage return overwrote is not shown.
        got.push(...parts.map(line => (line.split('\r').pop() ?? '').replace(ESCAPES, '')));
        if (done && got.at(-1) === '') got.pop();
        timer ??= setTimeout(show, 80);
        if (done) break;
      }
      setEnded(true);
    };
    read().catch(error => {
      if (!stop.signal.aborted) setProblem(trouble(error));
    });
    return () => {
      stop.abort();
      if (timer) clearTimeout(timer);
    };
  }, [project, name, workload.id, rank, run, hasRun]);
  return { lines, problem, ended };
}

export function WorkloadLogs({ workload }: { workload: Workload }) {
  const [rank, setRank] = useState(0);
  const [run, setRun] = useState<number | null>(null);
  const { lines, problem, ended } = useLog(workload, rank, run);
  const [text, setText] = useState('');
  const [at, setAt] = useState(0);
  const [follows, setFollows] = useState(true);
  const [wraps, setWraps] = useState(() => localStorage.getItem(WRAPS_KEPT) === 'yes');
  const hits = useMemo(() => {
    if (text === '') return [];
    const wanted = text.toLowerCase();
    return lines.flatMap((line, index) => (line.toLowerCase().includes(wanted) ? [index] : []));
  }, [lines, text]);
  const current = hits.length === 0 ? null : hits[Math.min(at, hits.length - 1)]!;
  const step = (by: number) => {
    if (hits.length === 0) return;
    setFollows(false);
    setAt(before => (Math.min(before, hits.length - 1) + by + hits.length) % hits.length);
  };
  return (
    <>
      <div className="log-tools">
        <input
          type="search"
          placeholder="Find in the log"
          aria-label="Find in the log"
          value={text}
          onChange={event => {
            setText(event.target.value);
            setAt(0);
          }}
          onKeyDown={event => {
            if (event.key === 'Enter') step(event.shiftKey ? -1 : 1);
          }}
        />
        {text !== '' && (
          <>
            <span className="dim" aria-live="polite">
              {hits.length === 0 ? 'not found' : `${Math.min(at, hits.length - 1) + 1} of ${hits.length}`}
            </span>
            <Button small icon="up" label="Previous hit" onClick={() => step(-1)} />
            <Button small icon="down" label="Next hit" onClick={() => step(1)} />
          </>
        )}
        <span className="room" />
        {workload.workers_max > 1 && (
          <select aria-label="Worker" value={rank} onChange={event => setRank(Number(event.target.value))}>
            {Array.from({ length: workload.workers_max }, (_, index) => (
              <option key={index} value={index}>
                Worker {index}
              </option>
            ))}
          </select>
        )}
        {workload.runs > 1 && (
          <select
            aria-label="Run"
            value={run ?? ''}
            onChange={event => setRun(event.target.value === '' ? null : Number(event.target.value))}
          >
            <option value="">Newest run ({workload.runs})</option>
            {Array.from({ length: workload.runs }, (_, index) => (
              <option key={index} value={index + 1}>
                Run {index + 1}
              </option>
            ))}
          </select>
        )}
        <Button
          small
          pressed={wraps}
          onClick={() => {
            localStorage.setItem(WRAPS_KEPT, wraps ? 'no' : 'yes');
            setWraps(!wraps);
          }}
        >
          Wrap
        </Button>
        <Button small pressed={follows} onClick={() => setFollows(!follows)}>
          Follow
        </Button>
        <Button
          small
          icon="file"
          label="Save the log"
          onClick={() => save(`${workload.name}.log`, `${lines.join('\n')}\n`, 'text/plain')}
        />
      </div>
      {problem && lines.length === 0 ? (
        <TroubleNote of={problem} />
      ) : lines.length === 0 ? (
        <Empty title={ended || isFinal(workload.status) ? 'No output' : 'No output yet'} />
      ) : (
        <Lines
          lines={lines}
          hits={hits}
          text={text}
          at={current}
          follows={follows}
          wraps={wraps}
          onScrollAway={() => setFollows(false)}
        />
      )}
    </>
  );
}

function Lines(props: {
  lines: string[];
  hits: number[];
  text: string;
  at: number | null;
  follows: boolean;
  wraps: boolean;
  onScrollAway: () => void;
}) {
  const { lines, follows, at, wraps, onScrollAway } = props;
  const frame = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ first: 0, last: 80 });
  const look = () => {
    const shown = frame.current;
    if (!shown) return;
    const first = Math.max(0, Math.floor(shown.scrollTop / LINE) - 10);
    const last = Math.ceil((shown.scrollTop + shown.clientHeight) / LINE) + 10;
    setView(before => (before.first === first && before.last === last ? before : { first, last }));
  };
  useLayoutEffect(() => {
    const shown = frame.current;
    if (shown && follows) shown.scrollTop = shown.scrollHeight;
    look();
  }, [lines, follows, wraps]);
  useLayoutEffect(() => {
    const shown = frame.current;
    if (!shown || at === null || follows) return;
    const line = shown.querySelector<HTMLElement>(`[data-line="${at}"]`);
    // Lines that wrap have heights of their own.
    const top = wraps ? (line?.offsetTop ?? 0) : at * LINE;
    shown.scrollTop = top - shown.clientHeight / 2;
  }, [at, follows, wraps]);
  const hits = useMemo(() => new Set(props.hits), [props.hits]);
  const shown: ReactNode[] = [];
  const first = wraps ? Math.max(0, lines.length - WRAPPED_MAX) : view.first;
  const last = wraps ? lines.length : Math.min(view.last, lines.length);
  for (let index = first; index < last; index += 1) {
    const name = index === at ? 'at' : hits.has(index) ? 'hit' : undefined;
    shown.push(
      <p key={index} data-line={index} className={name} style={wraps ? undefined : { top: index * LINE }}>
        {hits.has(index) ? marked(lines[index]!, props.text) : lines[index]}
      </p>,
    );
  }
  return (
    <div
      className={`log ${wraps ? 'wraps' : ''}`}
      ref={frame}
      onScroll={look}
      onWheel={event => {
        if (event.deltaY < 0) onScrollAway();
      }}
      role="log"
      aria-label="Log"
      aria-live="off"
      // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keyboard.
      tabIndex={0}
    >
      <div style={wraps ? undefined : { height: lines.length * LINE }}>{shown}</div>
    </div>
  );
}

function marked(line: string, text: string): ReactNode[] {
  const parts: ReactNode[] = [];
  const lower = line.toLowerCase();
  const wanted = text.toLowerCase();
  let from = 0;
  for (let found = lower.indexOf(wanted); found !== -1; found = lower.indexOf(wanted, from)) {
    parts.push(line.slice(from, found), <mark key={found}>{line.slice(found, found + text.length)}</mark>);
    from = found + text.length;
  }
  parts.push(line.slice(from));
  return parts;
}
