import { call, workloadPath } from '../api/client.ts';
import type { Workload } from '../api/types.ts';
import { quoted } from '../model/command.ts';
import { isFinal } from '../model/status.ts';
import { trouble } from '../parts/failure.tsx';
import { Button, Copyable, Empty } from '../parts/small.tsx';
import { sayTrouble } from '../parts/toast.tsx';

export function WorkloadConnect({ workload }: { workload: Workload }) {
  const which = `${quoted(workload.name)} -p ${quoted(workload.project)}`;
  const urls = workload.urls ?? [];
  const runs = workload.status === 'Running';
  return (
    <>
      {urls.length > 0 && (
        <div className="section">
          <h3>In the browser</h3>
          {runs && (
            <div className="actions">
              <Button icon="link" onClick={() => void open(workload)}>
                Open
              </Button>
            </div>
          )}
          {urls.map(url => (
            <Copyable key={url} text={url} />
          ))}
        </div>
      )}
      {runs ? (
        <div className="section">
          <h3>In a terminal</h3>
          <Copyable text={`berth bash ${which}`} />
          <Copyable text={`berth exec ${which} -- nvidia-smi`} />
          {urls.length > 0 && <Copyable text={`berth url ${which}`} />}
        </div>
      ) : (
        <Empty title={isFinal(workload.status) ? 'It is over' : 'It does not run yet'}>
          <p>One can connect while it runs.</p>
        </Empty>
      )}
      <div className="section">
        <h3>From the command line</h3>
        <Copyable text={`berth logs ${which} -f`} />
        <Copyable text={`berth get ${which}`} />
        {!isFinal(workload.status) && <Copyable text={`berth why ${which}`} />}
      </div>
    </>
  );
}

/** A page of a workload is opened by a link that is good once; what it may do ends with its own address. */
async function open(workload: Workload) {
  try {
    const { body } = await call<{ url: string }>('POST', workloadPath(workload, '/link'));
    if (/^https?:\/\//.test(body.url)) window.open(body.url, '_blank', 'noopener,noreferrer');
  } catch (error) {
    sayTrouble(trouble(error));
  }
}
