// A shell in a worker that runs.
import { lazy, Suspense, useCallback, useRef, useState } from 'react';
import type { End } from '../api/shell.ts';
import type { Workload } from '../api/types.ts';
import { quoted } from '../model/command.ts';
import { isFinal } from '../model/status.ts';
import { sentence } from '../parts/failure.tsx';
import { CheckField } from '../parts/field.tsx';
import { Button, Copyable, Empty } from '../parts/small.tsx';

const Terminal = lazy(() => import('../parts/terminal.tsx'));

const READS_KEPT = 'berth.terminal.reads';

type State =
  | { is: 'opening' }
  | { is: 'open'; notice: string | null }
  | { is: 'over'; text: string; bad: boolean };

export function WorkloadTerminal({ workload }: { workload: Workload }) {
  const runs = workload.status === 'Running';
  const [attempt, setAttempt] = useState(runs ? 1 : 0);
  const [rank, setRank] = useState(workload.tasks[0]?.rank ?? 0);
  const [state, setState] = useState<State>({ is: 'opening' });
  const [reads, setReads] = useState(() => localStorage.getItem(READS_KEPT) === 'yes');
  const bar = useRef<HTMLDivElement>(null);
  const began = useRef(false);
  const leave = useCallback(() => bar.current?.querySelector('button')?.focus(), []);
  const again = () => {
    began.current = false;
    setState({ is: 'opening' });
    setAttempt(Math.abs(attempt) + 1);
  };
  const ended = (end: End) => setState({ is: 'over', ...words(end, began.current, workload) });
  const which = `${quoted(workload.name)} -p ${quoted(workload.project)}`;
  if (attempt === 0) {
    return (
      <Empty title={isFinal(workload.status) ? 'It is over' : runs ? 'It runs' : 'It does not run yet'}>
        <p>A terminal is a shell beside the work, on the same node and with the same GPUs.</p>
        {runs && (
          <Button kind="primary" icon="terminal" onClick={again}>
            Open a terminal
          </Button>
        )}
        <Copyable text={`berth bash ${which}`} />
      </Empty>
    );
  }
  const node = workload.tasks.find(task => task.rank === rank)?.node;
  return (
    <>
      <div className="terminal-bar" ref={bar}>
        {state.is === 'over' ? (
          <Button small icon="play" disabled={!runs} onClick={again}>
            Connect again
          </Button>
        ) : (
          <Button
            small
            icon="close"
            onClick={() => {
              setAttempt(-attempt);
              setState({ is: 'over', text: 'You closed it.', bad: false });
            }}
          >
            Close the shell
          </Button>
        )}
        {workload.tasks.length > 1 && (
          <select
            aria-label="Worker"
            value={rank}
            onChange={event => {
              setRank(Number(event.target.value));
              again();
            }}
          >
            {workload.tasks.map(task => (
              <option key={task.rank} value={task.rank}>
                worker {task.rank} on {task.node}
              </option>
            ))}
          </select>
        )}
        <p role="status" className={state.is === 'over' && state.bad ? 'bad' : ''}>
          {state.is === 'opening' && 'Connecting…'}
          {state.is === 'open' && (state.notice ?? (node ? `Connected to ${node}` : 'Connected'))}
          {state.is === 'over' && state.text}
        </p>
        <CheckField
          label="For a screen reader"
          checked={reads}
          onChange={wanted => {
            localStorage.setItem(READS_KEPT, wanted ? 'yes' : 'no');
            setReads(wanted);
          }}
        />
      </div>
      <Suspense fallback={<p className="dim">Loading…</p>}>
        <Terminal
          workload={workload}
          rank={rank}
          attempt={attempt}
          label={`Terminal of ${workload.name}`}
          onStarted={() => {
            began.current = true;
            setState({ is: 'open', notice: null });
          }}
          onNotice={detail => setState({ is: 'open', notice: sentence(detail) })}
          onEnded={ended}
          reads={reads}
          onLeave={leave}
        />
      </Suspense>
      <p className="dim terminal-keys">
        <kbd>Ctrl</kbd>+<kbd>Shift</kbd>+<kbd>X</kbd> leaves the terminal, <kbd>C</kbd> and <kbd>V</kbd>{' '}
        instead copy and paste. The same from elsewhere: <code>berth bash {which}</code>
      </p>
    </>
  );
}

/** What became of a shell, in words. */
function words(end: End, began: boolean, workload: Workload): { text: string; bad: boolean } {
  if (end.how === 'exit') {
    const how = end.signal != null ? `by signal ${end.signal}` : `with code ${end.code ?? 0}`;
    return { text: `The shell ended ${how}.`, bad: end.signal != null || (end.code ?? 0) !== 0 };
  }
  if (end.how !== 'lost') return { text: sentence(end.detail), bad: true };
  if (began) return { text: 'The connection was lost; the work itself goes on.', bad: true };
  const why = workload.status === 'Running' ? 'the server did not take it' : `it is ${workload.status}`;
  return { text: `The shell could not be opened: ${why}.`, bad: true };
}
