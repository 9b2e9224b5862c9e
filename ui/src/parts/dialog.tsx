// A window over the page that must be answered, and a panel beside it that need not.
import { type ReactNode, useEffect, useId, useRef, useState } from 'react';
import { type Trouble, TroubleNote, trouble } from './failure.tsx';
import { Button, Copyable } from './small.tsx';

export function Dialog(props: { title: string; wide?: boolean; onClose: () => void; children: ReactNode }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const title = useId();
  useEffect(() => {
    const shown = dialog.current;
    if (shown && !shown.open) shown.showModal();
  }, []);
  return (
    <dialog
      ref={dialog}
      className={props.wide ? 'wide' : ''}
      aria-labelledby={title}
      onCancel={event => {
        event.preventDefault();
        props.onClose();
      }}
    >
      <header>
        <h2 id={title}>{props.title}</h2>
        <Button icon="close" label="Close" kind="plain" onClick={props.onClose} />
      </header>
      {props.children}
    </dialog>
  );
}

/** A form that mirrors a command: its fields, the command that does the same, and a button that sends it. */
export function FormDialog(props: {
  title: string;
  verb: string;
  /** The command that does the same. */
  command: string;
  ready?: boolean;
  wide?: boolean;
  /** What is to be read before it is sent. */
  notes?: ReactNode;
  /** Another thing to do with what stands in the fields. */
  other?: { verb: string; onDo: () => Promise<void> };
  onSend: () => Promise<void>;
  onClose: () => void;
  children: ReactNode;
}) {
  const form = useRef<HTMLFormElement>(null);
  const [busy, setBusy] = useState(false);
  const [tries, setTries] = useState(0);
  const during = async (work: () => Promise<void>) => {
    if (busy) return;
    setBusy(true);
    await work();
    setBusy(false);
    setTries(tries => tries + 1);
  };
  // Whoever sent something wrong goes on where it is.
  useEffect(() => {
    const wrong = tries > 0 ? form.current?.querySelector<HTMLElement>('[aria-invalid]') : null;
    const group = wrong?.closest('details');
    if (group) group.open = true;
    wrong?.focus();
  }, [tries]);
  return (
    <Dialog title={props.title} wide={props.wide} onClose={props.onClose}>
      <form
        noValidate
        ref={form}
        onSubmit={event => {
          event.preventDefault();
          void during(props.onSend);
        }}
      >
        <div className="dialog-body">{props.children}</div>
        <div className="dialog-tail">
          {props.notes}
          <Copyable text={props.command} label="Copy the command" />
        </div>
        <footer>
          {props.other && (
            <>
              <Button onClick={() => void during(props.other!.onDo)} disabled={busy}>
                {props.other.verb}
              </Button>
              <span className="room" />
            </>
          )}
          <Button onClick={props.onClose}>Cancel</Button>
          <Button type="submit" kind="primary" disabled={props.ready === false || busy}>
            {props.verb}
          </Button>
        </footer>
      </form>
    </Dialog>
  );
}

/** Asks before something that cannot be undone. */
export function Confirm(props: {
  title: string;
  children: ReactNode;
  verb: string;
  onClose: () => void;
  onConfirm: () => Promise<void>;
}) {
  const [problem, setProblem] = useState<Trouble | null>(null);
  const [busy, setBusy] = useState(false);
  const confirm = async () => {
    setBusy(true);
    try {
      await props.onConfirm();
      props.onClose();
    } catch (error) {
      setProblem(trouble(error));
      setBusy(false);
    }
  };
  return (
    <Dialog title={props.title} onClose={props.onClose}>
      <div className="dialog-body">
        {props.children}
        <TroubleNote of={problem} />
      </div>
      <footer>
        <Button onClick={props.onClose}>Cancel</Button>
        <Button kind="danger" disabled={busy} onClick={() => void confirm()}>
          {props.verb}
        </Button>
      </footer>
    </Dialog>
  );
}

export function Drawer(props: {
  title: ReactNode;
  label: string;
  wide?: boolean;
  onClose: () => void;
  /** Buttons beside the title. */
  actions?: ReactNode;
  /** Buttons with words, below the title. */
  bar?: ReactNode;
  children: ReactNode;
}) {
  const panel = useRef<HTMLElement>(null);
  const { onClose } = props;
  useEffect(() => {
    const before = document.activeElement;
    panel.current?.focus({ preventScroll: true });
    return () => {
      if (before instanceof HTMLElement && before.isConnected) before.focus({ preventScroll: true });
    };
  }, []);
  useEffect(() => {
    const close = (event: KeyboardEvent) => {
      if (
        event.key === 'Escape' &&
        !event.defaultPrevented &&
        document.querySelector('dialog[open]') === null
      )
        onClose();
    };
    window.addEventListener('keydown', close);
    return () => window.removeEventListener('keydown', close);
  }, [onClose]);
  return (
    <aside
      ref={panel}
      className={`drawer ${props.wide ? 'wide' : ''}`}
      aria-label={props.label}
      tabIndex={-1}
    >
      <header>
        <div className="drawer-title">{props.title}</div>
        <div className="drawer-actions">
          {props.actions}
          <Button icon="close" label="Close" kind="plain" onClick={onClose} />
        </div>
        {props.bar && <div className="drawer-bar">{props.bar}</div>}
      </header>
      {props.children}
    </aside>
  );
}
