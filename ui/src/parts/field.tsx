// A field of a form: its name, what it is for, and what is wrong with it, beside it.
import { type ReactNode, useEffect, useId, useState } from 'react';
import type { Draft, Part } from '../model/form.ts';

export interface FieldProps {
  label: string;
  hint?: string;
  problem?: string | null;
  wide?: boolean;
}

function Frame(props: FieldProps & { id: string; children: ReactNode }) {
  return (
    <div className={`field ${props.wide ? 'wide' : ''} ${props.problem ? 'wrong' : ''}`}>
      <label htmlFor={props.id}>{props.label}</label>
      {props.children}
      {props.problem ? (
        <p className="field-problem" id={`${props.id}-note`} role="alert">
          {props.problem}
        </p>
      ) : (
        props.hint && (
          <p className="field-hint" id={`${props.id}-note`}>
            {props.hint}
          </p>
        )
      )}
    </div>
  );
}

export function TextField(
  props: FieldProps & {
    value: string;
    onChange: (value: string) => void;
    placeholder?: string;
    type?: 'text' | 'password' | 'datetime-local';
    mono?: boolean;
    rows?: number;
    required?: boolean;
    autoFocus?: boolean;
    list?: string[];
    mode?: 'decimal';
  },
) {
  const id = useId();
  const shared = {
    id,
    value: props.value,
    placeholder: props.placeholder,
    required: props.required,
    className: props.mono ? 'mono' : undefined,
    'aria-invalid': props.problem ? true : undefined,
    'aria-describedby': props.problem || props.hint ? `${id}-note` : undefined,
    spellCheck: false,
    autoComplete: 'off',
  } as const;
  return (
    <Frame {...props} id={id}>
      {props.rows ? (
        <textarea {...shared} rows={props.rows} onChange={event => props.onChange(event.target.value)} />
      ) : (
        <input
          {...shared}
          type={props.type ?? 'text'}
          inputMode={props.mode}
          // biome-ignore lint/a11y/noAutofocus: a dialog that was asked for begins at its first field.
          autoFocus={props.autoFocus}
          list={props.list ? `${id}-list` : undefined}
          onChange={event => props.onChange(event.target.value)}
        />
      )}
      {props.list && (
        <datalist id={`${id}-list`}>
          {props.list.map(value => (
            <option key={value} value={value} />
          ))}
        </datalist>
      )}
    </Frame>
  );
}

export function SelectField(
  props: FieldProps & {
    value: string;
    onChange: (value: string) => void;
    options: { value: string; text: string }[];
  },
) {
  const id = useId();
  return (
    <Frame {...props} id={id}>
      <select
        id={id}
        value={props.value}
        aria-invalid={props.problem ? true : undefined}
        aria-describedby={props.problem || props.hint ? `${id}-note` : undefined}
        onChange={event => props.onChange(event.target.value)}
      >
        {props.options.map(option => (
          <option key={option.value} value={option.value}>
            {option.text}
          </option>
        ))}
      </select>
    </Frame>
  );
}

export function CheckField(props: {
  label: string;
  problem?: string | null;
  checked: boolean;
  onChange: (checked: boolean) => void;
}) {
  const id = useId();
  return (
    <div className="field">
      <label className="check">
        <input
          type="checkbox"
          checked={props.checked}
          aria-invalid={props.problem ? true : undefined}
          aria-describedby={props.problem ? `${id}-note` : undefined}
          onChange={event => props.onChange(event.target.checked)}
        />
        {props.label}
      </label>
      {props.problem && (
        <p className="field-problem" id={`${id}-note`} role="alert">
          {props.problem}
        </p>
      )}
    </div>
  );
}

/** The field of something that can be set. */
export function PartField<T>(props: {
  part: Part<T>;
  value: string;
  onChange: (value: string) => void;
  problem?: string | null;
  /** What can be chosen, or is often typed, when only this page knows. */
  options?: { value: string; text: string }[];
  autoFocus?: boolean;
}) {
  const { part, value, onChange, problem } = props;
  const { label, hint, placeholder, mono, wide, shape } = part;
  const options = props.options ?? part.options;
  const shared = { label, hint, wide, problem };
  if (shape.control === 'check')
    return (
      <CheckField
        {...{ label, problem }}
        checked={value === 'yes'}
        onChange={checked => onChange(checked ? 'yes' : '')}
      />
    );
  if (shape.control === 'choice')
    return <SelectField {...shared} value={value} onChange={onChange} options={options ?? []} />;
  return (
    <TextField
      {...shared}
      {...{ value, onChange, placeholder, mono }}
      autoFocus={props.autoFocus}
      rows={shape.control === 'lines' ? 2 : undefined}
      mode={shape.control === 'number' ? 'decimal' : undefined}
      list={options?.map(option => option.value)}
    />
  );
}

/** Fields that few need: shown when something stood in them, when something is wrong with them, and to whoever asks. */
export function MoreFields(props: {
  title: string;
  ids: string[];
  before: Draft;
  wrong: (id: string) => string | null;
  open?: boolean;
  children: ReactNode;
}) {
  const { ids, before, wrong } = props;
  const needed = props.open || ids.some(id => before[id] !== '' || wrong(id) !== null);
  const [open, setOpen] = useState(needed);
  // Nothing closes it but whoever looks at it.
  useEffect(() => {
    if (needed) setOpen(true);
  }, [needed]);
  return (
    <details open={open} onToggle={event => setOpen(event.currentTarget.open)}>
      <summary>{props.title}</summary>
      <div>{props.children}</div>
    </details>
  );
}
