import type { Workload } from '../api/types.ts';
import { quoted } from '../model/command.ts';
import { isFinal } from '../model/status.ts';
import { Icon } from '../parts/icon.tsx';
import { Copyable, Empty } from '../parts/small.tsx';

export function WorkloadConnect({ workload }: { workload: Workload }) {
  const which = `${quoted(workload.name)} -p ${quoted(workload.project)}`;
  const urls = workload.urls ?? [];
  const runs = workload.status === 'Running';
  return (
    <>
      {urls.length > 0 && (
        <div className="section">
          <h3>Addresses</h3>
          <ul>
            {urls.map(url => (
              <li key={url}>
                <a className="outside" href={safe(url)} target="_blank" rel="noopener noreferrer">
                  <Icon name="link" /> {url}
                </a>
              </li>
            ))}
          </ul>
        </div>
      )}
      {runs ? (
        <div className="section">
          <h3>In a terminal</h3>
          <Copyable text={`berth bash ${which}`} />
          <Copyable text={`berth exec ${which} -- nvidia-smi`} />
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

/** Only what a browser opens as a page; anything else leads nowhere. */
function safe(url: string) {
  return /^https?:\/\//.test(url) ? url : undefined;
}
